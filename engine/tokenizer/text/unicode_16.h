// Lists the characters that Unicode 15.0, 15.1 and 16.0 added, by general category. Oniguruma, the
// regular expressions of `tokenizers` (Hugging Face's library), knows them. A PCRE2 with the tables
// of Unicode 14 does not.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_UNICODE_16_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_UNICODE_16_H_

#include <string>
#include <string_view>

namespace megatrain {

// Returns the ranges of `category` ("L", "Lu", "N", ...) in the syntax of a PCRE2 class
// ("\x{1c89}-\x{1c8a}..."), or "" if no such character was added. Returns nullptr if the category
// is not in the table. The result is static.
const char* CharactersAfterUnicode14(std::string_view category);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_UNICODE_16_H_

// Characters that Unicode 15.0, 15.1 and 16.0 brought, by general category: what a PCRE2 built with
// Unicode 14's tables does not know and Oniguruma as `tokenizers` uses it does.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_UNICODE_16_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_UNICODE_16_H_

#include <string>
#include <string_view>

namespace megatrain {

// The ranges of `category` ("L", "Lu", "N", ...) written for the inside of a PCRE2 class
// ("\x{1c89}-\x{1c8a}..."), or nullptr if the category is not in the table.
const char* CharactersSinceUnicode14(std::string_view category);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_UNICODE_16_H_

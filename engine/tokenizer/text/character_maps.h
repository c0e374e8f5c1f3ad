// Rewrites texts as those normalizers of `tokenizers` (Hugging Face's library) do that look at one
// character at a time.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_MAPS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_MAPS_H_

#include <string>
#include <string_view>

#include "engine/tokenizer/text/offset_runs.h"

namespace megatrain {

// Each function that has an `out` writes the rewritten `text` to it. The comments name the
// normalizer of `tokenizers`. General categories are those of Unicode 7 to 9, of which `tokenizers`
// has tables. REQUIRES: `text` is well-formed UTF-8.

// Lowercase: replaces each character by its lower case, without regard to its neighbours.
void MapLowercase(std::string_view text, RunWriter* out);
// StripAccents: removes combining marks (category M).
void RemoveMarks(std::string_view text, RunWriter* out);
// BertNormalizer's strip_accents: removes non-spacing marks only (category Mn).
void RemoveNonspacingMarks(std::string_view text, RunWriter* out);
// Nmt: removes some control characters and replaces others, and some spaces, by a space.
void MapNmt(std::string_view text, RunWriter* out);
// BertNormalizer's clean_text: removes control, format and private-use characters and U+FFFD, and
// replaces white space by spaces.
void CleanText(std::string_view text, RunWriter* out);
// BertNormalizer's handle_chinese_chars: puts spaces around ideographs.
void SpaceIdeographs(std::string_view text, RunWriter* out);
// Returns true for the characters around which SpaceIdeographs puts spaces.
bool IsIdeograph(char32_t c);

// The result of ScriptOf for the space and for characters without a script in Unicode 9.
inline constexpr int kAnyScript = -1;
// Returns the script of a character (ICU's UScriptCode) as the pre-tokenizer UnicodeScripts of
// `tokenizers` sees it, or kAnyScript. Kana count as Han.
int ScriptOf(char32_t c);

// Returns a character class in PCRE2's syntax. It has the characters that `tokenizers` calls
// punctuation: ASCII's and those of category P.
std::string PunctuationClass();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_MAPS_H_

// Normalizations of `tokenizers` that look at one character at a time.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_MAPS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_MAPS_H_

#include <string>
#include <string_view>

#include "engine/tokenizer/text/offset_runs.h"

namespace megatrain {

// Each function that has an `out` writes the rewritten `text` to it. Categories are those of the
// Unicode versions, 7 to 9, that `tokenizers` has tables of. REQUIRES: `text` is well-formed UTF-8.

// Lowercase: each character to its lower case, without regard to its neighbours.
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

// Returns the script of a character (ICU's UScriptCode) as UnicodeScripts of `tokenizers` sees it:
// kana are Han. The space and characters without a script in Unicode 9 have kAnyScript.
inline constexpr int kAnyScript = -1;
int ScriptOf(char32_t c);

// Returns the class, in PCRE2's syntax, of what `tokenizers` calls punctuation.
std::string PunctuationClass();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_MAPS_H_

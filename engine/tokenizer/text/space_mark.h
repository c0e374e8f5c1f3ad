// Replaces spaces by the mark "▁" (U+2581), which stands for a space in SentencePiece's tokens,
// and marks by spaces.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPACE_MARK_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPACE_MARK_H_

#include <string>
#include <string_view>

#include "engine/tokenizer/text/normalizer.h"

namespace megatrain {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// The rules for putting a mark before a text that does not begin with one. These are the values of
// prepend_scheme of the pre_tokenizer Metaspace.
enum class MarkScheme {
  kFirst,   // only at the beginning of the original text
  kAlways,  // also after every added token
  kNever,
};

// Writes `text` to `marked`, with one mark before it if `prepend`, and with a mark for each space
// if `replace`. `runs` may be null. In `runs`, a mark put before the text has the offset of the
// text.
void MarkSpaces(std::string_view text, bool prepend, bool replace, std::string* marked,
                OffsetRuns* runs);

// Returns the text with every mark replaced by a space.
std::string UnmarkSpaces(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPACE_MARK_H_

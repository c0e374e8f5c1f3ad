// "▁" (U+2581), which stands for a space in SentencePiece's tokens.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPACE_MARK_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPACE_MARK_H_

#include <string>
#include <string_view>

#include "engine/tokenizer/text/normalizer.h"

namespace megatrain {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// When a mark is put before a text that does not begin with one: pre_tokenizer Metaspace's
// prepend_scheme.
enum class MarkScheme {
  kFirst,   // at the beginning of the original text
  kAlways,  // and behind every added token
  kNever,
};

// Writes `text` with a mark for each space, if `replace`, and one before it, if `prepend`, to
// `marked`. `runs` may be null; a mark put before comes from where the text begins.
void MarkSpaces(std::string_view text, bool prepend, bool replace, std::string* marked,
                OffsetRuns* runs);

// Every mark becomes a space again.
std::string UnmarkSpaces(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPACE_MARK_H_

// What is done to text before it is split: nothing, or Unicode's NFC.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_NORMALIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_NORMALIZER_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace megatrain {

// Where a normalized text's characters come from: runs that begin at `first` in the normalized text
// begin at `second` in the original, the last an empty one at the end. Empty: the texts are equal.
using OffsetRuns = std::vector<std::pair<size_t, size_t>>;

// The offset in the original of `offset` in the normalized text; inside a run that was changed, the
// run's beginning.
size_t OriginalOffset(const OffsetRuns& runs, size_t offset);

// True if `text` is in NFC for certain (no character from U+0300 on): the common case, at memory
// speed.
bool IsTriviallyNfc(std::string_view text);

// NFC of `text` (well-formed UTF-8). `runs` may be null.
absl::Status NormalizeNfc(std::string_view text, std::string* normalized, OffsetRuns* runs);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_NORMALIZER_H_

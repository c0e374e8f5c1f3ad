// Unicode's normalization form NFC, and the mapping of offsets from a normalized text to its
// original.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_NORMALIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_NORMALIZER_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace megatrain {

// Pairs (offset in the normalized text, offset in the original) at which runs begin, ascending,
// with an empty run at the end. Empty if the texts are equal.
using OffsetRuns = std::vector<std::pair<size_t, size_t>>;

// Returns the offset in the original that corresponds to `offset` in the normalized text. Within a
// run it counts from the beginning of the run and does not go beyond its end.
size_t OriginalOffset(const OffsetRuns& runs, size_t offset);

// Returns true if `text` has no character from U+0300 on. Such text is NFC. This is the common case
// and is checked at memory speed. False does not mean that the text is not NFC.
bool IsTriviallyNfc(std::string_view text);

// Writes NFC of `text` to `normalized`. `runs` may be null. Returns InvalidArgument for more than 1
// GiB and Internal if ICU fails. REQUIRES: `text` is well-formed UTF-8.
absl::Status NormalizeNfc(std::string_view text, std::string* normalized, OffsetRuns* runs);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_NORMALIZER_H_

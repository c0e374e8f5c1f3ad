// Marks the tokens of a text that the loss is on.
#ifndef MEGATRAIN_ENGINE_CHAT_TARGET_TOKENS_H_
#define MEGATRAIN_ENGINE_CHAT_TARGET_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace megatrain {

// A stretch of text, as byte offsets [begin, end).
using TextRange = std::pair<size_t, size_t>;

// Appends 1 for each token that overlaps one of `ranges`, and 0 for each other one. A token that
// straddles the edge of a range belongs to it. Token i is the bytes from offsets[i] to the next
// offset; the last token ends at `text_bytes`. If several tokens make one character, all but the
// last have no bytes and belong where they begin. REQUIRES: offsets and ranges are in ascending
// order, and ranges do not overlap.
void AppendTargets(absl::Span<const size_t> offsets, size_t text_bytes,
                   absl::Span<const TextRange> ranges, std::vector<uint8_t>* target);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_TARGET_TOKENS_H_

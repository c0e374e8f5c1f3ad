#include "engine/chat/target_tokens.h"

#include <algorithm>

namespace megatrain {

void AppendTargets(absl::Span<const size_t> offsets, size_t text_bytes,
                   absl::Span<const TextRange> ranges, std::vector<uint8_t>* target) {
  size_t range = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const size_t begin = offsets[i];
    const size_t end = i + 1 < offsets.size() ? offsets[i + 1] : text_bytes;
    while (range < ranges.size() && ranges[range].second <= begin) ++range;
    const bool hit = range < ranges.size() && std::max(end, begin + 1) > ranges[range].first;
    target->push_back(hit ? 1 : 0);
  }
}

}  // namespace megatrain

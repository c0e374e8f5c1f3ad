#include "engine/data/sequences/document_bounds.h"

#include <cstddef>

namespace megatrain {

void AppendDocumentStarts(const std::vector<int32_t>& document_ids, int64_t first,
                          std::vector<int32_t>& starts) {
  for (size_t t = 0; t < document_ids.size(); ++t) {
    if (t == 0 || document_ids[t] != document_ids[t - 1]) {
      starts.push_back(static_cast<int32_t>(first + static_cast<int64_t>(t)));
    }
  }
}

void WriteDocumentBounds(const std::vector<int32_t>& starts, int32_t* bounds) {
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    for (int32_t t = starts[i]; t < starts[i + 1]; ++t) {
      *bounds++ = starts[i];
      *bounds++ = starts[i + 1];
    }
  }
}

}  // namespace megatrain

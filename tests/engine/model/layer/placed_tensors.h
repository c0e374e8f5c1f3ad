// Where tensors lie in blocks of memory that are cut into them. The blocks are addresses only and
// have no memory.
#ifndef MEGATRAIN_TESTS_ENGINE_MODEL_LAYER_PLACED_TENSORS_H_
#define MEGATRAIN_TESTS_ENGINE_MODEL_LAYER_PLACED_TENSORS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/model/layer/activations.h"

namespace megatrain {

// A block that is far from those of other numbers. REQUIRES: number > 0.
inline char* BlockAddress(int number) {
  return reinterpret_cast<char*>(static_cast<uintptr_t>(number) << 40);
}

struct PlacedTensor {
  const char* name;
  const void* at;
  int64_t bytes;  // that it needs
};

// Expects that the tensors lie in the block [base, base + bytes), each in memory of its own.
inline void ExpectApart(std::vector<PlacedTensor> tensors, const char* base, int64_t bytes) {
  std::sort(tensors.begin(), tensors.end(),
            [](const PlacedTensor& a, const PlacedTensor& b) { return a.at < b.at; });
  const char *end = base, *before = "the block's beginning";
  for (const PlacedTensor& tensor : tensors) {
    const char* const at = static_cast<const char*>(tensor.at);
    EXPECT_EQ((at - base) % TensorCursor::kAlignment, 0) << tensor.name;
    EXPECT_GE(at - base, end - base) << tensor.name << " begins within " << before;
    end = std::max(end, at + tensor.bytes);
    before = tensor.name;
  }
  EXPECT_LE(end - base, bytes) << "room of the block, which ends with " << before;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_MODEL_LAYER_PLACED_TENSORS_H_

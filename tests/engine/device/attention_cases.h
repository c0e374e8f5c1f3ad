// Attention in many shapes: for the suite, and for tests that compare pool sizes too.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_ATTENTION_CASES_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_ATTENTION_CASES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {

struct AttentionCase {
  int64_t heads, kv_heads, head_dim, value_dim;
  std::vector<int32_t> document_starts;
  // As in AttentionShaping; with `sinks` each head has one.
  int64_t window = 0;
  float softcap = 0;
  bool sinks = false;
  AttentionChoice choice = AttentionChoice::kAuto;

  int64_t elements() const {
    return document_starts.back() * heads * std::max(head_dim, value_dim);
  }
  std::string Name() const;
};
const std::vector<AttentionCase>& AttentionCases();
// Operands and calls of one case: forward, or forward and backward. `workspace`: of the device,
// what its kernels ask for; null: an operand.
void MakeAttention(const AttentionCase& shape, DType dtype, bool backward, Operands* operands,
                   KernelCall* call, void* workspace = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_ATTENTION_CASES_H_

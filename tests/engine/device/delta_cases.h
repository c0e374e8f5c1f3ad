// The gated delta rule in many shapes: for the suite, and for tests that compare pool sizes too.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_DELTA_CASES_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_DELTA_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/delta_args.h"
#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {

// Documents as operands of a call. Without `state_rows`, a row for each document, there are none.
struct DocumentOperands {
  DocumentOperands(Operands* operands, std::vector<int32_t> starts,
                   const std::vector<int32_t>& state_rows = {});
  DeltaDocuments Bind(const std::vector<void*>& p) const;
  int64_t tokens() const { return starts.back(); }

  std::vector<int32_t> starts;
  size_t bounds = 0, rows = 0;
  bool has_states = false;
};

struct DeltaCase {
  int64_t key_heads, value_heads, key_dim, value_dim;
  std::vector<int32_t> starts;
  float a_log = 0;  // the mean; -4 is a long memory
  bool add = true;  // to the parameters' gradients

  int64_t tokens() const { return starts.back(); }
  int64_t elements() const { return tokens() * value_heads * (key_dim + value_dim); }
  std::string Name() const;
};
const std::vector<DeltaCase>& DeltaCases();

// The operands of a case's calls, but its documents.
class DeltaOperands {
 public:
  DeltaOperands(const DeltaCase& shape, DType dtype, bool backward, Operands* operands);

  // The arguments for `documents` that begin at token `first` of the case.
  GatedDeltaArgs Forward(const std::vector<void*>& p, const DocumentOperands& documents,
                         int64_t first = 0) const;
  // The workspace is as large as the kernels ask, so that a tool that checks every access sees
  // beyond it, or a generous size that is linear in tokens.
  GatedDeltaBackwardArgs Backward(const Kernels& kernels, const std::vector<void*>& p,
                                  const DocumentOperands& documents, int64_t first = 0) const;

  size_t out = 0, dout = 0, dq = 0, dk = 0, dv = 0, da = 0, db = 0;

 private:
  void* At(const std::vector<void*>& p, size_t operand, int64_t element) const;

  const DeltaCase shape_;
  const DType dtype_;
  int64_t keys_, values_, stride_, workspace_bytes_;
  size_t qkv_, ba_, a_log_, dt_bias_, da_log_ = 0, ddt_bias_ = 0, workspace_ = 0;
};

// Operands and a call of one case: forward, or backward.
void MakeGatedDelta(const DeltaCase& shape, DType dtype, bool backward, Operands* operands,
                    KernelCall* call);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_DELTA_CASES_H_

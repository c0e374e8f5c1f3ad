#include "tests/engine/device/delta_cases.h"

#include <algorithm>
#include <utility>

namespace megatrain {

DocumentOperands::DocumentOperands(Operands* operands, std::vector<int32_t> starts,
                                   const std::vector<int32_t>& state_rows)
    : starts(std::move(starts)), has_states(!state_rows.empty()) {
  std::vector<int32_t> bounds_of, rows_of;
  for (size_t d = 0; d + 1 < this->starts.size(); ++d) {
    for (int32_t t = this->starts[d]; t < this->starts[d + 1]; ++t) {
      bounds_of.insert(bounds_of.end(), {this->starts[d], this->starts[d + 1]});
      rows_of.push_back(has_states ? state_rows[d] : -1);
    }
  }
  bounds = operands->Ints(bounds_of);
  rows = operands->Ints(rows_of);
}

DeltaDocuments DocumentOperands::Bind(const std::vector<void*>& p) const {
  return {.tokens = tokens(),
          .documents = static_cast<int64_t>(starts.size()) - 1,
          .starts = starts.data(),
          .bounds = static_cast<int32_t*>(p[bounds]),
          .state_rows = has_states ? static_cast<int32_t*>(p[rows]) : nullptr};
}

std::string DeltaCase::Name() const {
  std::string name = std::to_string(key_heads) + " key heads of " + std::to_string(key_dim) + ", " +
                     std::to_string(value_heads) + " of values of " + std::to_string(value_dim) +
                     ", documents end at";
  for (size_t d = 1; d < starts.size(); ++d) name += " " + std::to_string(starts[d]);
  return name + ", a_log " + std::to_string(a_log);
}

const std::vector<DeltaCase>& DeltaCases() {
  static const std::vector<DeltaCase>& cases = *new std::vector<DeltaCase>{
      // Small enough for tools that check every access.
      {1, 1, 3, 5, {0, 7}},
      {2, 4, 8, 8, {0, 9, 75}, -4},
      {1, 2, 5, 3, {0, 130, 131}, -4, /*add=*/false},
      // Documents as long as chunks, a token longer and a token shorter.
      {1, 3, 20, 12, {0, 64, 192, 255}, -4},
      {2, 2, 64, 32, {0, 65, 129}, -4},
      {2, 4, 16, 16, {0, 1, 3, 70, 200}},
      {1, 1, 72, 136, {0, 33, 140}, -3, /*add=*/false},
      {16, 32, 8, 8, {0, 40}, -2},
      {1, 2, 128, 128, {0, 150}, -4},
      {1, 1, 256, 40, {0, 70}, -4},
      {1, 1, 16, 256, {0, 70}, -4},
      {2, 2, 16, 24, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14}},
  };
  return cases;
}

namespace {

// What lies behind the last token is neither used, not even times zero, nor written.
constexpr int64_t kTokensBehind = 80;
// Behind the rows of gradients.
constexpr int64_t kPadding = 3;

}  // namespace

DeltaOperands::DeltaOperands(const DeltaCase& shape, DType dtype, bool backward, Operands* operands)
    : shape_(shape),
      dtype_(dtype),
      keys_(shape.key_heads * shape.key_dim),
      values_(shape.value_heads * shape.value_dim),
      stride_(2 * keys_ + values_),  // q, k, v side by side, as the layers keep them
      workspace_bytes_(4096 + 16 * shape.tokens() * shape.value_heads *
                                  (64 + shape.value_dim +
                                   (shape.key_dim + 16) * (shape.value_dim + 16) / kDeltaChunk)) {
  const auto by_token = [&](int64_t width) {
    return operands->RandomBefore(dtype, shape.tokens() * width, kTokensBehind * width);
  };
  qkv_ = by_token(stride_);
  ba_ = by_token(2 * shape.value_heads);
  std::vector<float> a_logs = Normal(operands->random(), shape.value_heads, 1.0);
  for (float& a_log : a_logs) a_log += shape.a_log;
  a_log_ = operands->Values(dtype, a_logs);
  dt_bias_ = operands->Random(dtype, shape.value_heads);
  out = by_token(values_);
  if (!backward) return;
  dout = by_token(values_);
  dq = by_token(keys_ + kPadding);
  dk = by_token(keys_ + kPadding);
  dv = by_token(values_ + kPadding);
  da = by_token(shape.value_heads);
  db = by_token(shape.value_heads);
  da_log_ = operands->Random(DType::kF32, shape.value_heads);
  ddt_bias_ = operands->Random(DType::kF32, shape.value_heads);
  workspace_ = operands->Raw(workspace_bytes_);
}

void* DeltaOperands::At(const std::vector<void*>& p, size_t operand, int64_t element) const {
  return static_cast<char*>(p[operand]) + element * DTypeBytes(dtype_);
}

GatedDeltaArgs DeltaOperands::Forward(const std::vector<void*>& p,
                                      const DocumentOperands& documents, int64_t first) const {
  const int64_t gates = 2 * shape_.value_heads;  // b, then a
  return {.dtype = dtype_,
          .documents = documents.Bind(p),
          .key_heads = shape_.key_heads,
          .value_heads = shape_.value_heads,
          .key_dim = shape_.key_dim,
          .value_dim = shape_.value_dim,
          .q = At(p, qkv_, first * stride_),
          .q_stride = stride_,
          .k = At(p, qkv_, first * stride_ + keys_),
          .k_stride = stride_,
          .v = At(p, qkv_, first * stride_ + 2 * keys_),
          .v_stride = stride_,
          .a = At(p, ba_, first * gates + shape_.value_heads),
          .a_stride = gates,
          .b = At(p, ba_, first * gates),
          .b_stride = gates,
          .a_log = p[a_log_],
          .dt_bias = p[dt_bias_],
          .out = At(p, out, first * values_)};
}

GatedDeltaBackwardArgs DeltaOperands::Backward(const Kernels& kernels, const std::vector<void*>& p,
                                               const DocumentOperands& documents,
                                               int64_t first) const {
  constexpr int64_t kAlignment = 64;
  const int64_t asked = kernels.GatedDeltaBackwardWorkspaceBytes(
      {documents.tokens(), shape_.key_heads, shape_.value_heads, shape_.key_dim, shape_.value_dim});
  const int64_t bytes = std::min(asked, workspace_bytes_);
  char* const workspace =
      static_cast<char*>(p[workspace_]) + (workspace_bytes_ - bytes) / kAlignment * kAlignment;
  const int64_t dq_stride = keys_ + kPadding, dv_stride = values_ + kPadding;
  return {.forward = Forward(p, documents, first),
          .dout = At(p, dout, first * values_),
          .dq = At(p, dq, first * dq_stride),
          .dq_stride = dq_stride,
          .dk = At(p, dk, first * dq_stride),
          .dk_stride = dq_stride,
          .dv = At(p, dv, first * dv_stride),
          .dv_stride = dv_stride,
          .da = At(p, da, first * shape_.value_heads),
          .da_stride = shape_.value_heads,
          .db = At(p, db, first * shape_.value_heads),
          .db_stride = shape_.value_heads,
          .da_log = static_cast<float*>(p[da_log_]),
          .ddt_bias = static_cast<float*>(p[ddt_bias_]),
          .add_parameters = shape_.add,
          .workspace = workspace,
          .workspace_bytes = bytes};
}

void MakeGatedDelta(const DeltaCase& shape, DType dtype, bool backward, Operands* operands,
                    KernelCall* call) {
  const DocumentOperands documents(operands, shape.starts);
  const DeltaOperands delta(shape, dtype, backward, operands);
  *call = [=](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
    return backward ? kernels.GatedDeltaBackward(stream, delta.Backward(kernels, p, documents))
                    : kernels.GatedDelta(stream, delta.Forward(p, documents));
  };
}

}  // namespace megatrain

#include "engine/device/cpu/delta/gates.h"

#include <algorithm>
#include <cmath>

#include "engine/base/dtype.h"

namespace megatrain {
namespace {

float At(DType dtype, const void* x, int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(x)[i]
                              : Bf16ToFloat(static_cast<const bf16_t*>(x)[i]);
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Returns log(1 + exp(x)), without overflow.
float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

void LoadGates(const GatedDeltaArgs& args, int64_t head, int64_t first, size_t rows,
               ChunkGates* gates) {
  const float rate = -std::exp(At(args.dtype, args.a_log, head));
  const float bias = At(args.dtype, args.dt_bias, head);
  gates->rows = rows;
  double sum = 0;
  double sums[kDeltaChunk];
  for (size_t i = 0; i < rows; ++i) {
    const int64_t t = first + static_cast<int64_t>(i);
    const float input = At(args.dtype, args.a, t * args.a_stride + head) + bias;
    gates->beta[i] = Sigmoid(At(args.dtype, args.b, t * args.b_stride + head));
    gates->log_decay[i] = rate * Softplus(input);
    gates->slope[i] = rate * Sigmoid(input);
    sum += gates->log_decay[i];
    sums[i] = sum;
    gates->high[i] = static_cast<float>(sum);
    gates->low[i] = static_cast<float>(sum - double{gates->high[i]});
    gates->since_start[i] = std::exp(gates->high[i]);
  }
  for (size_t i = 0; i < rows; ++i) {
    gates->until_end[i] = std::exp(static_cast<float>(sum - sums[i]));
  }
}

}  // namespace megatrain

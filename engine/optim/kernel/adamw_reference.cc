#include <bit>
#include <cmath>

#include "engine/memory/split_master.h"
#include "engine/optim/kernel/adamw_kernel.h"

namespace megatrain {

// std::fma where the kernel has a fused multiply-add, so that the two agree bit for bit on every
// processor that has one. (This file and the kernel are built without contraction: no other product
// is fused.)
bool AdamWUpdateSpanReference(const AdamWConstants& c, float decay, DType gradient_dtype,
                              const AdamWSpan& span) {
  const bool split = span.remainder != nullptr;
  bf16_t* const weights16 = static_cast<bf16_t*>(span.weights);
  float* const weights32 = static_cast<float*>(span.weights);
  bool trusted = true;
  for (int64_t i = 0; i < span.elements; ++i) {
    const float raw = gradient_dtype == DType::kF32
                          ? static_cast<const float*>(span.gradient)[i]
                          : Bf16ToFloat(static_cast<const bf16_t*>(span.gradient)[i]);
    const float g = c.gradient_scale * raw;
    const float p = split ? DecodeMaster(weights16[i], span.remainder[i]) : weights32[i];
    float& m = span.exp_avg[i];
    float& v = span.exp_avg_sq[i];
    m = std::fma(c.one_minus_beta1, g - m, m);
    v = std::fma(c.one_minus_beta2 * g, g, c.beta2 * v);
    const float denominator = std::fma(std::sqrt(v), c.inverse_sqrt_bias2, c.epsilon);
    const float updated = std::fma(-c.step_size, m / denominator, decay * p);
    if (split) {
      const SplitMaster halves = EncodeMaster(updated);
      weights16[i] = halves.weight;
      span.remainder[i] = halves.remainder;
      trusted = trusted && IsEncodable(updated);
    } else {
      weights32[i] = updated;
      trusted = trusted && std::isfinite(updated);
    }
    trusted = trusted && std::isfinite(v);
  }
  return trusted;
}

}  // namespace megatrain

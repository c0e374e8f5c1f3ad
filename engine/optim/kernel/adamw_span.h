// AdamWSpan and AdamWConstants are the operands of AdamW over a run of neighboring elements, for
// the kernels of the host and of devices.
#ifndef MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_SPAN_H_
#define MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_SPAN_H_

#include <cstdint>
#include <vector>

namespace megatrain {

// The rates that a group of tensors may have of its own.
struct AdamWRates {
  double learning_rate = 0, weight_decay = 0;
};

// The numbers of a step's update (formulas in engine/optim/adamw.h).
struct AdamWStep {
  int64_t step = 1;  // from 1; the exponent of the bias correction
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  float gradient_scale = 1;  // the clipping coefficient
  // The rates of groups: those of elements with `rate_group` i > 0 (TensorSpec::rate_group) are
  // groups[i - 1]. Elements with 0 have the rates above.
  std::vector<AdamWRates> groups;
};

// The scalars of a step, computed in FP64 and rounded once.
struct AdamWConstants {
  float gradient_scale = 1;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float inverse_sqrt_bias2 = 1;  // 1 / sqrt(1 - beta2^step)
  float epsilon = 0;
  float step_size = 0;  // learning_rate / (1 - beta1^step)
  float decay = 1;      // 1 - learning_rate * weight_decay

  // Returns the scalars for elements with `rate_group`. REQUIRES: 0 <= rate_group <=
  // step.groups.size().
  static AdamWConstants Make(const AdamWStep& step, int rate_group = 0);
};

// Streams of `elements` elements each, which must not overlap. Does not own memory. Null is allowed
// for `remainder` only.
struct AdamWSpan {
  const void* gradient = nullptr;  // FP32 or BF16
  void* weights = nullptr;         // FP32 masters, or the BF16 halves (split_master.h)
  int16_t* remainder = nullptr;    // the other halves; null with FP32 masters
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  int64_t elements = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_SPAN_H_

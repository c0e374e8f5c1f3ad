// The inner loop of AdamW: one run of neighbouring elements, vectorised for the processor at hand.
#ifndef MEGATRAIN_ENGINE_OPTIM_ADAMW_KERNEL_H_
#define MEGATRAIN_ENGINE_OPTIM_ADAMW_KERNEL_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/optim/adamw.h"

namespace megatrain {

// The step's scalars, computed in FP64 and rounded once.
struct AdamWConstants {
  float gradient_scale;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inverse_sqrt_bias2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float step_size;  // learning_rate / (1 - beta1^step)
  float decay;      // 1 - learning_rate * weight_decay

  static AdamWConstants Make(const AdamWStep& step);
};

// `elements` of each stream. Streams do not overlap.
struct AdamWSpan {
  const void* gradient;  // FP32 or BF16
  void* weights;         // FP32 masters, or the BF16 halves of split masters
  int16_t* remainder;    // the other halves; null for FP32
  float* exp_avg;
  float* exp_avg_sq;
  int64_t elements;
};

// Updates the span in place; `decay` multiplies the master first (1 for tensors without decay).
// False if an updated master is not finite or has no finite BF16 half (split masters), or if a
// second moment is not finite (a gradient beyond 1.8e19, whose square overflows: from then on the
// element would never move again). Each stream is prefetched so many elements ahead; 0: not.
bool AdamWUpdateSpan(const AdamWConstants& constants, float decay, DType gradient_dtype,
                     const AdamWSpan& span, int prefetch_elements);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_KERNEL_H_

// The inner loop of AdamW: one run of neighbouring elements, vectorised for the processor at hand.
#ifndef MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_KERNEL_H_
#define MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_KERNEL_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/optim/kernel/adamw_span.h"

namespace megatrain {

// How far ahead of its use a line of each stream is asked for, unless measured: 2 KB of FP32, 1 KB
// of BF16.
inline constexpr int kAdamWPrefetchElements = 512;

// Updates the span in place; `decay` multiplies the master first (1 for tensors without decay).
// False if an updated master is not finite or has no finite BF16 half (split masters), or if a
// second moment is not finite (a gradient beyond 1.8e19, whose square overflows: from then on the
// element would never move again). Each stream is prefetched so many elements ahead; 0: not.
bool AdamWUpdateSpan(const AdamWConstants& constants, float decay, DType gradient_dtype,
                     const AdamWSpan& span, int prefetch_elements = kAdamWPrefetchElements);

// The same by plain loops: the same bits where the calling thread flushes denormals, as those of
// pools do.
bool AdamWUpdateSpanReference(const AdamWConstants& constants, float decay, DType gradient_dtype,
                              const AdamWSpan& span);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_KERNEL_H_

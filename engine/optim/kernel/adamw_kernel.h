// The inner loop of AdamW: updates a run of neighboring elements with the vector instructions of
// the processor at hand.
#ifndef MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_KERNEL_H_
#define MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_KERNEL_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/optim/kernel/adamw_span.h"

namespace megatrain {

// The default distance, in elements, at which a cache line of each stream is prefetched: 2 KB of
// FP32, 1 KB of BF16.
inline constexpr int kAdamWPrefetchElements = 512;

// Updates the span in place by the formulas of adamw.h. The master is first multiplied by `decay`:
// constants.decay for tensors with weight decay, 1 for others. constants.decay itself is not read.
// Each stream is prefetched `prefetch_elements` ahead; 0 means not at all.
//
// Returns false if an updated master is not finite or (split masters) has no finite BF16 half, or
// if a second moment is not finite. The latter happens with a gradient that is not finite, and when
// (1 - beta2) gradient^2 overflows, with beta2 = 0.95 for gradients from about 8e19 on. The element
// would never move again. All of the span is updated in any case.
bool AdamWUpdateSpan(const AdamWConstants& constants, float decay, DType gradient_dtype,
                     const AdamWSpan& span, int prefetch_elements = kAdamWPrefetchElements);

// Does the same by plain loops, for tests. Gives the same bits if the calling thread flushes
// denormals, as the threads of a pool do, and the processor has fused multiply-add.
bool AdamWUpdateSpanReference(const AdamWConstants& constants, float decay, DType gradient_dtype,
                              const AdamWSpan& span);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_KERNEL_ADAMW_KERNEL_H_

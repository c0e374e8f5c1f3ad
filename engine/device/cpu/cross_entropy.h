// Cross-entropy and its gradient for a range of tokens (see CrossEntropyArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_

#include "engine/device/kernels.h"

namespace megatrain {

// Computes tokens [begin, end). Different ranges may be computed by different threads.
void CrossEntropyTokens(const CrossEntropyArgs& args, int64_t begin, int64_t end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_

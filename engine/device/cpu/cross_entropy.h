// Cross-entropy and its gradient over ranges of tokens.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_

#include "engine/device/kernels.h"

namespace megatrain {

void CrossEntropyTokens(const CrossEntropyArgs& args, int64_t begin, int64_t end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_

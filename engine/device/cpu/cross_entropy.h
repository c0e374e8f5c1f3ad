// Cross-entropy and its gradient for a range of tokens on the cpu device (see CrossEntropyArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_

#include <cstdint>

#include "engine/device/kernels.h"

namespace megatrain {

// Computes losses of tokens [begin, end) and, unless args.loss_only, gradients. The pointers are
// those of token 0; args.tokens is not read. Several threads may compute different ranges at once.
void CrossEntropyTokens(const CrossEntropyArgs& args, int64_t begin, int64_t end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_CROSS_ENTROPY_H_

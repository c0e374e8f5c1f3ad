// Gated linear units and sigmoid gates for a range of tokens on the cpu device (see GluArgs and
// SigmoidGateArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_GLU_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_GLU_H_

#include <cstdint>

#include "engine/device/kernels.h"

namespace megatrain {

// All compute tokens [begin, end). The pointers are those of token 0; args.tokens is not read.
// Several threads may compute different ranges at once.
void GluTokens(const GluArgs& args, int64_t begin, int64_t end);
void GluBackwardTokens(const GluBackwardArgs& args, int64_t begin, int64_t end);
void SigmoidGateTokens(const SigmoidGateArgs& args, int64_t begin, int64_t end);
void SigmoidGateBackwardTokens(const SigmoidGateBackwardArgs& args, int64_t begin, int64_t end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_GLU_H_

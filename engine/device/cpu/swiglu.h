// SwiGLU for a range of tokens (see SwiGluArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_SWIGLU_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_SWIGLU_H_

#include "engine/device/kernels.h"

namespace megatrain {

// Compute tokens [begin, end).
void SwiGluTokens(const SwiGluArgs& args, int64_t begin, int64_t end);
void SwiGluBackwardTokens(const SwiGluBackwardArgs& args, int64_t begin, int64_t end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_SWIGLU_H_

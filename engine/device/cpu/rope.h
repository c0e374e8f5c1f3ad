// Rotary position embedding for a range of tokens on the cpu device (see RopeArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ROPE_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ROPE_H_

#include <cstdint>

#include "engine/device/kernels.h"

namespace megatrain {

// Rotates tokens [begin, end). The pointers are those of token 0; args.tokens is not read. Several
// threads may rotate different ranges at once.
void RopeTokens(const RopeArgs& args, int64_t begin, int64_t end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ROPE_H_

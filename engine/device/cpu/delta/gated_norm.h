// The delta net's gated norm for a range of tokens, on the cpu device (see GatedNormArgs,
// engine/device/delta_args.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_NORM_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_NORM_H_

#include <cstdint>

#include "engine/device/delta_args.h"

namespace megatrain {

// Both compute tokens [begin, end). The pointers are those of token 0; args.tokens is not read.
// Several threads may compute different ranges at once.
void GatedNormTokens(const GatedNormArgs& args, int64_t begin, int64_t end);
// Overwrites dweight_part [head_dim] with the part of dweight that comes from the range.
// args.dweight and args.add_dweight are not used.
void GatedNormBackwardTokens(const GatedNormBackwardArgs& args, int64_t begin, int64_t end,
                             float* dweight_part);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_NORM_H_

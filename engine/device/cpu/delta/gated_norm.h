// The delta net's gated norm over ranges of tokens (see GatedNormArgs, engine/device/delta_args.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_NORM_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_NORM_H_

#include <cstdint>

#include "engine/device/delta_args.h"

namespace megatrain {

// Both compute tokens [begin, end). Several threads may compute different ranges at once.
void GatedNormTokens(const GatedNormArgs& args, int64_t begin, int64_t end);
// Overwrites dweight_part [head_dim] with the sum over the range.
void GatedNormBackwardTokens(const GatedNormBackwardArgs& args, int64_t begin, int64_t end,
                             float* dweight_part);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_NORM_H_

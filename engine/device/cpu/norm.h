// RMSNorm over ranges of rows; the pool's blocks are such ranges.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_NORM_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_NORM_H_

#include "engine/device/kernels.h"

namespace megatrain {

void RmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end);

// Writes dx of the rows and their share of dweight to dweight_part [width] (overwritten).
void RmsNormBackwardRows(const RmsNormBackwardArgs& args, int64_t begin, int64_t end,
                         float* dweight_part);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_NORM_H_

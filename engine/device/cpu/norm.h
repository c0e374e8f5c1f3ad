// RMSNorm for a range of rows on the cpu device (see RmsNormArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_NORM_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_NORM_H_

#include <cstdint>

#include "engine/device/kernels.h"

namespace megatrain {

// Computes rows [begin, end). The pointers are those of row 0; args.rows is not read. Several
// threads may compute different ranges at once, here and in the backward pass.
void RmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end);

// Computes dx of rows [begin, end), and overwrites dweight_part [width] with the part of dweight
// that comes from these rows. args.dweight and args.add_dweight are not used.
void RmsNormBackwardRows(const RmsNormBackwardArgs& args, int64_t begin, int64_t end,
                         float* dweight_part);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_NORM_H_

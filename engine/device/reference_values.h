// Reads and writes single elements of arrays as FP64, for the reference kernels.
#ifndef MEGATRAIN_ENGINE_DEVICE_REFERENCE_VALUES_H_
#define MEGATRAIN_ENGINE_DEVICE_REFERENCE_VALUES_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain::reference {

// Returns x[i] of an array of `dtype`.
inline double Get(DType dtype, const void* x, int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(x)[i]
                              : Bf16ToFloat(static_cast<const bf16_t*>(x)[i]);
}

// Sets x[i] = value in an array of `dtype`. Rounds to FP32 and then, for BF16, to BF16.
inline void Set(DType dtype, void* x, int64_t i, double value) {
  const float rounded = static_cast<float>(value);
  if (dtype == DType::kF32) {
    static_cast<float*>(x)[i] = rounded;
  } else {
    static_cast<bf16_t*>(x)[i] = FloatToBf16(rounded);
  }
}

}  // namespace megatrain::reference

#endif  // MEGATRAIN_ENGINE_DEVICE_REFERENCE_VALUES_H_

#include "tests/engine/device/cuda/emulated_product.h"

#include <cmath>

namespace megatrain {
namespace {

float Get(DType dtype, const void* x, int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(x)[i]
                              : Bf16ToFloat(static_cast<const bf16_t*>(x)[i]);
}

}  // namespace

int CheckEmulatedProduct(const CudaProduct& p) {
  constexpr int kInvalidValue = 7, kNotSupported = 15;
  if (p.dtype == DType::kF32 && p.out_dtype != DType::kF32) return kNotSupported;
  const bool strides = p.a_stride >= (p.transpose_a ? p.k : p.m) &&
                       p.b_stride >= (p.transpose_b ? p.n : p.k) && p.out_stride >= p.m;
  return strides && p.m > 0 && p.n > 0 && p.k > 0 ? 0 : kInvalidValue;
}

// Element (row, column) of a matrix is at column * stride + row.
void EmulatedProduct(const CudaProduct& p) {
  for (int64_t column = 0; column < p.n; ++column) {
    for (int64_t row = 0; row < p.m; ++row) {
      double sum = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const int64_t a = p.transpose_a ? row * p.a_stride + l : l * p.a_stride + row;
        const int64_t b = p.transpose_b ? l * p.b_stride + column : column * p.b_stride + l;
        sum += static_cast<double>(Get(p.dtype, p.a, a)) * Get(p.dtype, p.b, b);
      }
      sum *= p.alpha;
      const int64_t out = column * p.out_stride + row;
      if (p.bias != nullptr) sum += Get(p.out_dtype, p.bias, row);
      if (p.c != nullptr) sum += Get(p.out_dtype, p.c, out);
      if (p.out_dtype == DType::kF32) {
        static_cast<float*>(p.out)[out] = static_cast<float>(sum);
      } else {
        static_cast<bf16_t*>(p.out)[out] = FloatToBf16(static_cast<float>(sum));
      }
    }
  }
}

void SpoilProduct(const CudaProduct& p, bool nan) {
  const int64_t at = p.n / 2 * p.out_stride + p.m / 2;
  const float value = nan ? std::nanf("") : 1.0f + 2 * std::abs(Get(p.out_dtype, p.out, at));
  if (p.out_dtype == DType::kF32) {
    static_cast<float*>(p.out)[at] = value;
  } else {
    static_cast<bf16_t*>(p.out)[at] = FloatToBf16(value);
  }
}

}  // namespace megatrain

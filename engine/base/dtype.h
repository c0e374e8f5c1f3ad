// The two element types of weights and activations, and conversions between FP32 and BF16.
#ifndef MEGATRAIN_ENGINE_BASE_DTYPE_H_
#define MEGATRAIN_ENGINE_BASE_DTYPE_H_

#include <bit>
#include <cstdint>

namespace megatrain {

enum class DType { kF32, kBF16 };

constexpr int64_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
// Returns the name of the type in safetensors files.
constexpr const char* DTypeName(DType dtype) { return dtype == DType::kF32 ? "F32" : "BF16"; }
// Returns the value of training.precision in a job file that selects this type.
constexpr const char* PrecisionName(DType dtype) { return dtype == DType::kF32 ? "fp32" : "bf16"; }

// The upper half of an IEEE binary32. It is for storage only: arithmetic is done in FP32.
using bf16_t = uint16_t;

constexpr float Bf16ToFloat(bf16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Rounds to nearest, ties to even; a NaN stays a NaN. (Master weights are split by
// engine/memory/split_master.h, which rounds ties away from zero.)
constexpr bf16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bf16_t>((bits >> 16) | 0x40u);
  return static_cast<bf16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DTYPE_H_

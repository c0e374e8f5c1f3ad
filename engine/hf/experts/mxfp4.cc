#include "engine/hf/experts/mxfp4.h"

#include <bit>

namespace megatrain {
namespace {

constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

// Returns 2^(scale - 127), or NaN. Those are the FP32 numbers whose exponent is the scale, but for
// 2^-127, which is below the normal ones.
float Factor(uint8_t scale) {
  if (scale == 0) return 0x1p-127f;
  if (scale == kMxfp4NanScale) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(uint32_t{scale} << 23);
}

}  // namespace

void DecodeMxfp4(const uint8_t* packed, const uint8_t* scales, int64_t blocks, int64_t stride,
                 float* values) {
  for (int64_t block = 0; block < blocks; ++block) {
    float table[16];
    for (int i = 0; i < 8; ++i) {
      table[i] = kMagnitudes[i] * Factor(scales[block]);
      table[i + 8] = -table[i];
    }
    for (int64_t i = 0; i < kMxfp4BlockBytes; ++i, ++packed) {
      values[0] = table[*packed & 15];
      values[stride] = table[*packed >> 4];
      values += 2 * stride;
    }
  }
}

}  // namespace megatrain

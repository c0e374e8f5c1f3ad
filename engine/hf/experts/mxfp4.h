// Reads MXFP4, the format of gpt-oss's experts on disk (OCP Microscaling Formats 1.0, 2023).
//
// A block is 32 values of four bits in 16 bytes, the value of an even index in the lower half of
// its byte. The four bits are a sign and a magnitude of 0, 0.5, 1, 1.5, 2, 3, 4 or 6. A block has a
// scale s of one byte, and each value is multiplied by 2^(s - 127). A scale of 255 makes all values
// of its block NaN. Values below 2^128 are exact in FP32 and in BF16; the others become infinite.
#ifndef MEGATRAIN_ENGINE_HF_EXPERTS_MXFP4_H_
#define MEGATRAIN_ENGINE_HF_EXPERTS_MXFP4_H_

#include <cstdint>

namespace megatrain {

inline constexpr int64_t kMxfp4BlockValues = 32;
inline constexpr int64_t kMxfp4BlockBytes = 16;
inline constexpr uint8_t kMxfp4NanScale = 255;

// Decodes `packed` [blocks, 16] with `scales` [blocks]. Sets values[i * stride] to value i, for
// each i in [0, 32 * blocks). With a stride above 1 it can fill a column of a matrix.
void DecodeMxfp4(const uint8_t* packed, const uint8_t* scales, int64_t blocks, int64_t stride,
                 float* values);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_EXPERTS_MXFP4_H_

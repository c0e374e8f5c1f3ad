#include "engine/base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

namespace megatrain {
namespace {

bf16_t Rounded(uint32_t bits) { return FloatToBf16(std::bit_cast<float>(bits)); }

TEST(DTypeTest, Bf16IsTheNearestAndOfTwoTheEven) {
  for (const uint32_t sign : {0x0000u, 0x8000u}) {
    const uint32_t high = sign << 16;
    EXPECT_EQ(Rounded(high | 0x3f800000u), sign | 0x3f80u);
    EXPECT_EQ(Rounded(high | 0x3f807fffu), sign | 0x3f80u);
    EXPECT_EQ(Rounded(high | 0x3f808000u), sign | 0x3f80u);
    EXPECT_EQ(Rounded(high | 0x3f808001u), sign | 0x3f81u);
    EXPECT_EQ(Rounded(high | 0x3f817fffu), sign | 0x3f81u);
    EXPECT_EQ(Rounded(high | 0x3f818000u), sign | 0x3f82u);
    EXPECT_EQ(Rounded(high | 0x7f7f7fffu), sign | 0x7f7fu);
    EXPECT_EQ(Rounded(high | 0x7f7f8000u), sign | 0x7f80u) << "beyond the largest";
    EXPECT_EQ(Rounded(high | 0x7f800000u), sign | 0x7f80u);
    // A NaN stays one: a payload in the lower half is lost.
    EXPECT_EQ(Rounded(high | 0x7f800001u), sign | 0x7fc0u);
    EXPECT_EQ(Rounded(high | 0x7fffffffu), sign | 0x7fffu);
  }
}

TEST(DTypeTest, EachHasItsSizeAndNames) {
  EXPECT_EQ(Bf16ToFloat(0x3f80), 1.0f);
  EXPECT_EQ(Bf16ToFloat(0xc040), -3.0f);
  EXPECT_EQ(DTypeBytes(DType::kF32), 4);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2);
  EXPECT_STREQ(DTypeName(DType::kF32), "F32");
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(PrecisionName(DType::kF32), "fp32");
  EXPECT_STREQ(PrecisionName(DType::kBF16), "bf16");
}

}  // namespace
}  // namespace megatrain

// The vector functions of the cpu's kernels against the host's in FP64, compiled for the compiler's
// own instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

// After those above, which are the host's.
#include "engine/device/cpu/loops/simd-inl.h"

namespace megatrain {
namespace {

namespace simd = HWY_NAMESPACE;

float TanhOf(float x) { return simd::hn::GetLane(simd::Tanh(simd::hn::Set(simd::DF(), x))); }
float ExpOf(float x) { return simd::hn::GetLane(simd::Exp(simd::hn::Set(simd::DF(), x))); }
float ExpNegativeOf(float x) {
  return simd::hn::GetLane(simd::ExpNegative(simd::hn::Set(simd::DF(), x)));
}

// Returns |got - want| in units of the last place of want, as FP32.
double UnitsOff(float got, double want) {
  const int exponent = std::max(std::ilogb(want), std::numeric_limits<float>::min_exponent - 1);
  return std::abs(got - want) / std::ldexp(1.0, exponent - 23);
}

TEST(SimdTest, TanhIsWithinTwoUnitsInTheLastPlace) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-30, 4.5);
  double worst = 0;
  const auto check = [&](float x) {
    worst = std::max(worst, UnitsOff(TanhOf(x), std::tanh(double{x})));
    EXPECT_EQ(TanhOf(-x), -TanhOf(x)) << x;
  };
  for (int i = 0; i < 1'000'000; ++i) check(static_cast<float>(std::exp2(exponent(random))));
  // On both sides of where one formula takes over from the other.
  for (float x = 0.6249f; x < 0.6251f; x = std::nextafter(x, 1.0f)) check(x);
  EXPECT_LE(worst, 2.0);
}

TEST(SimdTest, TanhAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TanhOf(infinity), 1.0f);
  EXPECT_EQ(TanhOf(-infinity), -1.0f);
  EXPECT_EQ(TanhOf(50.0f), 1.0f);
  EXPECT_EQ(TanhOf(0.0f), 0.0f);
  EXPECT_EQ(TanhOf(1e-30f), 1e-30f);
  EXPECT_TRUE(std::isnan(TanhOf(std::nanf(""))));
}

TEST(SimdTest, ExpIsWithinTwoUnitsInTheLastPlace) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<float> all(-87.336f, 88.722f), negative(-87.0f, 0.25f);
  double worst = 0;
  for (int i = 0; i < 200'000; ++i) {
    const float x = all(random), y = negative(random);
    worst = std::max(worst, UnitsOff(ExpOf(x), std::exp(double{x})));
    worst = std::max(worst, UnitsOff(ExpNegativeOf(y), std::exp(double{y})));
  }
  EXPECT_LE(worst, 2.0);
}

// The last results that are normal numbers, and the first arguments beyond them.
TEST(SimdTest, ExpAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  constexpr float kLow = -87.33654f, kHigh = 88.72284f, kLowOfNegative = -87.0f;
  EXPECT_GE(ExpOf(kLow), std::numeric_limits<float>::min());
  EXPECT_EQ(ExpOf(std::nextafter(kLow, -infinity)), 0.0f);
  EXPECT_EQ(ExpOf(-infinity), 0.0f);
  EXPECT_LT(ExpOf(std::nextafter(kHigh, 0.0f)), infinity);
  EXPECT_EQ(ExpOf(std::nextafter(kHigh, infinity)), infinity);
  EXPECT_EQ(ExpOf(infinity), infinity);
  EXPECT_EQ(ExpOf(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(ExpOf(std::nanf(""))));

  EXPECT_GE(ExpNegativeOf(kLowOfNegative), std::numeric_limits<float>::min());
  EXPECT_EQ(ExpNegativeOf(std::nextafter(kLowOfNegative, -infinity)), 0.0f);
  EXPECT_EQ(ExpNegativeOf(-infinity), 0.0f);
  EXPECT_EQ(ExpNegativeOf(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(ExpNegativeOf(std::nanf(""))));
}

}  // namespace
}  // namespace megatrain

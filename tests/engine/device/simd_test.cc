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

}  // namespace
}  // namespace megatrain

#include "engine/memory/split_master.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace megatrain {
namespace {

static_assert(DecodeMaster(EncodeMaster(1.0f)) == 1.0f);
static_assert(EncodeMaster(1.0f) == SplitMaster{0x3f80, 0});
static_assert(EncodeMasterBits(0x3f80ffff) == SplitMaster{0x3f81, -1});
static_assert(EncodeMasterBits(0x3f808000) == SplitMaster{0x3f81, -32768});  // tie: away from zero
static_assert(EncodeMasterBits(0xbf808000) == SplitMaster{0xbf81, -32768});
static_assert(IsEncodable(3.39e38f) && !IsEncodable(3.3961776e38f));

// What all patterns of a range add up to. Branch-free in 32 bits, so that the loop vectorises.
struct Counts {
  uint64_t round_trip_errors = 0;
  uint64_t not_nearest = 0;   // encodable, yet rounded farther than half a unit or by another rule
  uint64_t ties_differ = 0;   // finite patterns whose half differs from nearest-even
  uint64_t other_differ = 0;  // ... that are no ties
  uint64_t finite_infinite = 0;  // finite patterns whose half is infinite
  uint64_t nan_lost = 0;         // NaN patterns whose half is no NaN
  uint64_t encodable_wrong = 0;  // IsEncodable is not "finite and the half is finite"
};

Counts CountRange(uint32_t first_high, uint32_t last_high) {
  Counts total;
  for (uint32_t high = first_high; high < last_high; ++high) {
    uint32_t errors = 0, far = 0, ties = 0, others = 0, finite_infinite = 0, nan_lost = 0,
             wrong = 0;
    for (uint32_t low = 0; low < 0x10000u; ++low) {
      const uint32_t bits = high << 16 | low;
      const SplitMaster split = EncodeMasterBits(bits);
      const uint32_t half = split.weight;
      const uint32_t magnitude = bits & 0x7fffffffu, half_magnitude = half & 0x7fffu;
      const uint32_t finite = magnitude < 0x7f800000u;
      const uint32_t nearest_even = ((bits + 0x7fffu + (high & 1u)) >> 16) & 0xffffu;
      const uint32_t differs = half != nearest_even;
      // Away from zero: in sign and magnitude, half a unit is added and the rest cut off.
      const uint32_t nearest_away = ((bits + 0x8000u) >> 16) & 0xffffu;
      errors += DecodeMasterBits(split) != bits;
      far += half != nearest_away;
      ties += finite & differs & (low == 0x8000u);
      others += finite & differs & (low != 0x8000u);
      finite_infinite += finite & (half_magnitude == 0x7f80u);
      nan_lost += (magnitude > 0x7f800000u) & (half_magnitude <= 0x7f80u);
      wrong += static_cast<uint32_t>(IsEncodable(bits)) !=
               (finite & static_cast<uint32_t>(half_magnitude < 0x7f80u));
    }
    total.round_trip_errors += errors;
    total.not_nearest += far;
    total.ties_differ += ties;
    total.other_differ += others;
    total.finite_infinite += finite_infinite;
    total.nan_lost += nan_lost;
    total.encodable_wrong += wrong;
  }
  return total;
}

TEST(SplitMasterTest, EveryPattern) {
  const uint32_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Counts> parts(threads);
  std::vector<std::thread> workers;
  for (uint32_t t = 0; t < threads; ++t) {
    workers.emplace_back([&parts, t, threads] {
      parts[t] = CountRange(0x10000u * t / threads, 0x10000u * (t + 1) / threads);
    });
  }
  for (std::thread& worker : workers) worker.join();
  Counts sum;
  for (const Counts& part : parts) {
    sum.round_trip_errors += part.round_trip_errors;
    sum.not_nearest += part.not_nearest;
    sum.ties_differ += part.ties_differ;
    sum.other_differ += part.other_differ;
    sum.finite_infinite += part.finite_infinite;
    sum.nan_lost += part.nan_lost;
    sum.encodable_wrong += part.encodable_wrong;
  }
  EXPECT_EQ(sum.round_trip_errors, 0u);
  EXPECT_EQ(sum.not_nearest, 0u);
  // Ties with an even upper half: 2 signs * 255 exponents * 128 mantissas / 2.
  EXPECT_EQ(sum.ties_differ, 32640u);
  EXPECT_EQ(sum.other_differ, 0u);
  // 0x7f7f8000..0x7f7fffff, both signs.
  EXPECT_EQ(sum.finite_infinite, 65536u);
  EXPECT_EQ(sum.nan_lost, 131070u);
  EXPECT_EQ(sum.encodable_wrong, 0u);
}

TEST(SplitMasterTest, TheSmallestMasterThatBecomesInfinite) {
  const float smallest = std::bit_cast<float>(kUnencodableMagnitude);
  EXPECT_NEAR(smallest, 3.396e38, 1e35);
  EXPECT_TRUE(std::isfinite(smallest));
  EXPECT_TRUE(std::isinf(Bf16ToFloat(EncodeMaster(smallest).weight)));
  const float below = std::nextafter(smallest, 0.0f);
  EXPECT_TRUE(IsEncodable(below));
  EXPECT_EQ(EncodeMaster(below).weight, 0x7f7f);  // the largest finite BF16
  EXPECT_TRUE(IsEncodable(-below));
  EXPECT_FALSE(IsEncodable(-smallest));
  EXPECT_FALSE(IsEncodable(std::numeric_limits<float>::infinity()));
  EXPECT_FALSE(IsEncodable(std::numeric_limits<float>::quiet_NaN()));
}

}  // namespace
}  // namespace megatrain

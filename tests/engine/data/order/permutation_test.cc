#include "engine/data/order/permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Order(uint64_t seed, uint64_t epoch, int64_t n) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) order.push_back(PermutedIndex(seed, epoch, n, i));
  return order;
}

TEST(PermutationTest, IsABijectionOfEverySize) {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const int64_t n : {1023, 1024, 1025, 4095, 4096, 4097, 65536, 65537, 100003}) {
    sizes.push_back(n);
  }
  for (const int64_t n : sizes) {
    std::vector<bool> seen(static_cast<size_t>(n), false);
    for (const int64_t index : Order(42, 3, n)) {
      ASSERT_GE(index, 0);
      ASSERT_LT(index, n);
      ASSERT_FALSE(seen[static_cast<size_t>(index)]) << n;
      seen[static_cast<size_t>(index)] = true;
    }
  }
}

TEST(PermutationTest, WorksForNumbersThatNoTableCouldHold) {
  const int64_t n = int64_t{1} << 40;
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t index = PermutedIndex(1, 0, n, n - 1 - i);
    EXPECT_GE(index, 0);
    EXPECT_LT(index, n);
    EXPECT_TRUE(seen.insert(index).second);
  }
}

TEST(PermutationTest, DependsOnSeedAndEpochAlone) {
  EXPECT_EQ(Order(42, 0, 1000), Order(42, 0, 1000));
  EXPECT_NE(Order(42, 0, 1000), Order(42, 1, 1000));
  EXPECT_NE(Order(42, 0, 1000), Order(43, 0, 1000));
  // Seed s in epoch e + 1 is not seed s + 1 in epoch e.
  EXPECT_NE(Order(42, 1, 1000), Order(43, 0, 1000));
}

// A run that a later version resumes goes on in the same order: these numbers must never change.
TEST(PermutationTest, IsTheSameInEveryVersion) {
  EXPECT_THAT(Order(42, 0, 10), ElementsAre(7, 8, 2, 5, 6, 1, 9, 3, 0, 4));
  EXPECT_THAT(Order(42, 1, 10), ElementsAre(6, 5, 8, 0, 9, 4, 2, 3, 7, 1));
  // The last size of the smallest domain, one of the next, and a large one.
  EXPECT_EQ(PermutedIndex(42, 2, 256, 0), 133);
  EXPECT_EQ(PermutedIndex(42, 2, 512, 0), 124);
  EXPECT_EQ(PermutedIndex(42, 0, int64_t{1} << 40, 1), 778188441247);
}

// Every permutation of 4 elements comes up, each about equally often.
TEST(PermutationTest, ReachesAllOrdersOfFewElements) {
  constexpr int kDraws = 24 * 200;
  std::map<std::vector<int64_t>, int> counts;
  for (int epoch = 0; epoch < kDraws; ++epoch) ++counts[Order(7, static_cast<uint64_t>(epoch), 4)];
  EXPECT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 200.0) * (count - 200.0) / 200.0;
  EXPECT_LT(chi_square, 49.7);  // 23 degrees of freedom, p = 0.001
}

// Where each element goes is uniform over epochs: for n in and above the smallest domain.
TEST(PermutationTest, SpreadsEachElementEvenly) {
  for (const int64_t n : {10, 100, 1000}) {
    constexpr int kEpochs = 5000;
    std::vector<int> counts(10, 0);  // tenths of [0, n)
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      ++counts[static_cast<size_t>(PermutedIndex(5, static_cast<uint64_t>(epoch), n, 0) * 10 / n)];
    }
    double chi_square = 0;
    for (const int count : counts) chi_square += (count - 500.0) * (count - 500.0) / 500.0;
    EXPECT_LT(chi_square, 27.9) << n;  // 9 degrees of freedom, p = 0.001
  }
}

// Neighbours do not stay neighbours, and the order is not close to the file's.
TEST(PermutationTest, LeavesNoOrderBehind) {
  const int64_t n = 20000;
  const std::vector<int64_t> order = Order(11, 0, n);
  const double mean = static_cast<double>(n - 1) / 2;
  double with_position = 0, with_next = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(order[static_cast<size_t>(i)]) - mean;
    variance += value * value;
    with_position += value * (static_cast<double>(i) - mean);
    if (i + 1 < n) {
      with_next += value * (static_cast<double>(order[static_cast<size_t>(i + 1)]) - mean);
    }
  }
  // A correlation of independent numbers has a standard deviation of 1 / sqrt(n) = 0.007.
  EXPECT_LT(std::abs(with_position / variance), 0.028);
  EXPECT_LT(std::abs(with_next / variance), 0.028);
}

}  // namespace
}  // namespace megatrain

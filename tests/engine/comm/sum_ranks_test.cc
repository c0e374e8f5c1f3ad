#include "engine/comm/sum_ranks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace megatrain {
namespace {

using Arrays = std::vector<std::vector<float>>;

Arrays RandomArrays(int ranks, size_t elements) {
  const unsigned seed = std::random_device()();
  ::testing::Test::RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-20, 20);
  Arrays arrays(static_cast<size_t>(ranks), std::vector<float>(elements));
  for (std::vector<float>& array : arrays) {
    for (float& value : array) value = std::ldexp(normal(random), exponent(random));
  }
  return arrays;
}

std::vector<const float*> Pointers(const Arrays& arrays) {
  std::vector<const float*> pointers;
  for (const std::vector<float>& array : arrays) pointers.push_back(array.data());
  return pointers;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

float Tree(const Arrays& arrays, size_t first, size_t count, size_t i) {
  if (count == 1) return arrays[first][i];
  size_t left = 1;
  while (left * 2 < count) left *= 2;
  return Tree(arrays, first, left, i) + Tree(arrays, first + left, count - left, i);
}

TEST(SumRanksTest, AddsInTheOrderOfTheTree) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{1023}, size_t{2055}}) {
      const Arrays arrays = RandomArrays(ranks, elements);
      std::vector<float> sum(elements), expected(elements);
      SumRanks(Pointers(arrays), static_cast<int64_t>(elements), sum.data());
      for (size_t i = 0; i < elements; ++i) {
        expected[i] = Tree(arrays, 0, static_cast<size_t>(ranks), i);
      }
      EXPECT_TRUE(SameBits(sum, expected)) << ranks << " ranks, " << elements << " elements";
    }
  }
}

TEST(SumRanksTest, TheResultMayReplaceAnyPart) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    const Arrays arrays = RandomArrays(ranks, 3000);
    std::vector<float> expected(3000);
    SumRanks(Pointers(arrays), 3000, expected.data());
    for (size_t rank = 0; rank < arrays.size(); ++rank) {
      Arrays replaced = arrays;
      SumRanks(Pointers(replaced), 3000, replaced[rank].data());
      EXPECT_TRUE(SameBits(replaced[rank], expected)) << "rank " << rank << " of " << ranks;
    }
  }
}

TEST(SumRanksTest, RankAdditionsGiveTheSameBits) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    Arrays arrays = RandomArrays(ranks, 200);
    std::vector<float> expected(200);
    SumRanks(Pointers(arrays), 200, expected.data());
    const std::vector<RankAddition> additions = RankAdditions(ranks);
    EXPECT_EQ(additions.size(), static_cast<size_t>(ranks) - 1);
    for (const RankAddition& addition : additions) {
      std::vector<float>& to = arrays[static_cast<size_t>(addition.to)];
      for (size_t i = 0; i < to.size(); ++i) {
        to[i] += arrays[static_cast<size_t>(addition.from)][i];
      }
    }
    EXPECT_TRUE(SameBits(arrays[0], expected)) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace megatrain

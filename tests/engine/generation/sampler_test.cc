#include "engine/generation/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace megatrain {
namespace {

// The probabilities that remain, by the definitions: tokens sorted, cut, and normalised again.
std::map<int32_t, double> Reference(const std::vector<float>& logits, const SamplingOptions& o) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (o.top_k > 0 && o.top_k < std::ssize(order)) {
    const float last = logits[order[o.top_k - 1]];
    std::erase_if(order, [&](int32_t id) { return logits[id] < last; });
  }
  std::vector<double> p;
  for (const int32_t id : order)
    p.push_back(std::exp((logits[id] - logits[order[0]]) / o.temperature));
  double whole = std::accumulate(p.begin(), p.end(), 0.0), sum = 0;
  size_t kept = 0;
  while (kept < p.size() && (kept == 0 || sum < o.top_p * whole)) sum += p[kept++];
  std::map<int32_t, double> result;
  for (size_t i = 0; i < kept; ++i) result[order[i]] = p[i] / sum;
  return result;
}

TEST(SamplerTest, DrawsWhatTheFiltersLeaveAsOftenAsItIsLikely) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0, 3);
  for (const SamplingOptions& options :
       {SamplingOptions{1.0, 0, 1.0}, SamplingOptions{0.7, 5, 1.0}, SamplingOptions{1.3, 0, 0.8},
        SamplingOptions{1.0, 6, 0.5}, SamplingOptions{1.0, 1, 1.0}, SamplingOptions{2.0, 0, 1e-9},
        SamplingOptions{1.0, 1000, 0.999}}) {
    std::vector<float> logits(40);
    for (float& logit : logits) logit = normal(random);
    logits[7] = logits[3];
    const std::map<int32_t, double> expected = Reference(logits, options);
    constexpr int kDraws = 20000;
    std::map<int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[SampleToken(logits, options, random)];
    for (const auto& [id, count] : counts) EXPECT_TRUE(expected.contains(id)) << id;
    for (const auto& [id, p] : expected) {
      EXPECT_NEAR(counts[id], p * kDraws, 5 * std::sqrt(p * kDraws) + 1) << id;
    }
  }
}

TEST(SamplerTest, WithoutTemperatureItIsTheFirstOfTheLikeliest) {
  std::mt19937_64 random(1), untouched(1);
  EXPECT_EQ(SampleToken({1, 3, -1, 3}, {.temperature = 0, .top_k = 2, .top_p = 0.5}, random), 1);
  EXPECT_EQ(SampleToken({1, 3, -1, 3}, {.temperature = -1}, random), 1);
  EXPECT_EQ(random, untouched);
}

// The numbers of a sequence follow from its seed and the count of its tokens.
TEST(SamplerTest, ADrawTakesOneNumber) {
  std::mt19937_64 random(9), expected(9);
  for (const SamplingOptions& options :
       {SamplingOptions{1.0, 0, 1.0}, SamplingOptions{0.5, 2, 0.9}, SamplingOptions{1.0, 1, 1.0}}) {
    SampleToken({1, 2, 3}, options, random);
    expected();
    EXPECT_EQ(random, expected);
  }
}

TEST(SamplerTest, TokensAsLikelyAsTheLastOfTheTopStay) {
  std::mt19937_64 random(3);
  std::map<int32_t, int> counts;
  for (int i = 0; i < 200; ++i) {
    ++counts[SampleToken({0, 1, 2, 1, 1}, {.temperature = 1, .top_k = 2}, random)];
  }
  EXPECT_EQ(counts.count(0), 0u);
  for (const int32_t id : {1, 2, 3, 4}) EXPECT_GT(counts[id], 0) << id;
}

TEST(SamplerTest, OfEquallyLikelyTokensTheNucleusHasTheFirst) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    EXPECT_LT(SampleToken({0, 2, 2, 2, 2}, {.temperature = 1, .top_p = 0.4}, random), 3);
    EXPECT_LT(SampleToken({2, 2, 2, 2}, {.temperature = 1, .top_p = 0.5}, random), 2)
        << "two together reach it";
  }
}

TEST(SamplerTest, OneSeedGivesOneToken) {
  const std::vector<float> logits = {1, 2, 3, 2.5f, 0};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 a(seed), b(seed);
    EXPECT_EQ(SampleToken(logits, {}, a), SampleToken(logits, {}, b));
  }
}

}  // namespace
}  // namespace megatrain

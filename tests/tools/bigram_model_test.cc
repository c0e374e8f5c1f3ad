#include "tests/tools/bigram_model.h"

#include <cmath>
#include <cstddef>
#include <iterator>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(BigramModelTest, IsADistribution) {
  BigramModel model(5);
  const int32_t text[] = {0, 1, 0, 1, 2, 0, 0, 3, 1, 2, 2};
  for (size_t i = 0; i + 1 < std::size(text); ++i) model.Add(text[i], text[i + 1]);
  for (int32_t last = 0; last < 5; ++last) {
    double sum = 0;
    for (int32_t next = 0; next < 5; ++next) sum += std::exp(-model.Loss(last, next));
    EXPECT_NEAR(sum, 1.0, 1e-12) << last;
  }
}

TEST(BigramModelTest, FollowsTheFormula) {
  BigramModel model(4);
  EXPECT_NEAR(model.Loss(0, 1), std::log(4.0), 1e-12);
  model.Add(0, 1);
  model.Add(0, 1);
  model.Add(0, 2);
  const double unigram = (2 + 2 / 4.0) / (3 + 2);
  EXPECT_NEAR(model.Loss(0, 1), -std::log((2 + 2 * unigram) / (3 + 2)), 1e-12);
  EXPECT_NEAR(model.Loss(3, 1), -std::log(unigram), 1e-12);
}

}  // namespace
}  // namespace megatrain

#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/hf/config_json.h"

namespace megatrain {
namespace {

// Against transformers' rotary embeddings; tests/golden/make_rope_references.py.
TEST(RopeTest, TablesAreThoseOfTransformers) {
  std::ifstream stream("tests/golden/rope/rope_reference.json");
  const nlohmann::json cases = nlohmann::json::parse(stream);
  ASSERT_GE(cases.size(), 14u);
  for (const auto& [name, reference] : cases.items()) {
    SCOPED_TRACE(name);
    const auto config = ParseModelDescription(reference["config"].dump(), name);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto expected = reference["inverse_frequencies"].get<std::vector<float>>();
    const RopeConfig& rope = config->ropes.front();
    const int64_t length = reference["positions"].back().get<int64_t>() + 1;
    const std::vector<float> actual = RopeInverseFrequencies(rope, length);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      // PyTorch's power is good to one unit in the last place, ours to a half; what follows rounds
      // a few times more.
      EXPECT_NEAR(actual[i], expected[i], 5e-7 * expected[i]) << "frequency " << i;
    }

    const auto positions = reference["positions"].get<std::vector<int64_t>>();
    const int64_t count = positions.back() + 1, half = rope.rotary_dim / 2;
    std::vector<float> cosine(count * half), sine(count * half);
    // In two pieces, as a trainer takes many.
    const int64_t begin = count / 3, at = begin * half;
    RopeTables(rope, length, 0, begin, cosine.data(), sine.data());
    RopeTables(rope, length, begin, count, cosine.data() + at, sine.data() + at);
    for (size_t row = 0; row < positions.size(); ++row) {
      const auto expected_cosine = reference["cosine"][row].get<std::vector<float>>();
      const auto expected_sine = reference["sine"][row].get<std::vector<float>>();
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at = positions[row] * half + i;
        // The angle is position * frequency: a relative error of the frequency grows with it.
        const double bound = 2e-7 + 5e-7 * static_cast<double>(positions[row]) * expected[i];
        EXPECT_NEAR(cosine[at], expected_cosine[i], bound) << positions[row] << ", " << i;
        EXPECT_NEAR(sine[at], expected_sine[i], bound) << positions[row] << ", " << i;
      }
    }
  }
}

// YaRN, as the paper has it and transformers computes it (_compute_yarn_parameters), in FP64: a
// ramp over the dimensions from the one that turns beta_fast times over the original positions to
// the one that turns beta_slow times, both kept within [0, head_dim - 1].
std::vector<double> YarnFrequencies(const RopeConfig& rope) {
  const double dim = static_cast<double>(rope.rotary_dim);
  const auto dimension = [&](double rotations) {
    return dim * std::log(static_cast<double>(rope.original_positions) / (rotations * 2 * M_PI)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = low < 0 ? 0 : low;
  high = high > dim - 1 ? dim - 1 : high;
  if (low == high) high += 0.001;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rope.rotary_dim / 2; ++i) {
    const double kept = std::pow(rope.theta, -2.0 * static_cast<double>(i) / dim);
    double ramp = (static_cast<double>(i) - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    frequencies.push_back(kept / rope.factor * ramp + kept * (1 - ramp));
  }
  return frequencies;
}

TEST(RopeTest, YarnsRampIsKeptWithinTheDimensions) {
  struct Case {
    const char* name;
    double theta, beta_fast, beta_slow;
    int64_t original;
    bool truncate;
  };
  for (const Case& c : {
           // The slow end would lie beyond the last dimension: original positions far above
           // 2 pi theta.
           Case{"slow end clamped", 10.0, 1000.0, 1.0, 10'000, true},
           Case{"slow end clamped, untruncated", 10.0, 1000.0, 0.5, 10'000, false},
           Case{"both ends beyond", 10.0, 32.0, 1.0, 100'000, true},
           Case{"both ends beyond, untruncated", 10.0, 32.0, 1.0, 100'000, false},
           // The fast end would lie before the first: fewer than 2 pi beta_fast positions.
           Case{"fast end clamped", 10'000.0, 32.0, 1.0, 64, true},
           Case{"fast end clamped, untruncated", 10'000.0, 32.0, 1.0, 64, false},
           // Equal ends: a step instead of a ramp.
           Case{"equal ends", 10'000.0, 4.0, 4.0, 4096, false},
           Case{"equal ends at the first dimension", 10'000.0, 32.0, 1.0, 6, true},
       }) {
    SCOPED_TRACE(c.name);
    RopeConfig rope;
    rope.rotary_dim = 16;
    rope.type = RopeType::kYarn;
    rope.theta = c.theta;
    rope.factor = 4.0;
    rope.beta_fast = c.beta_fast;
    rope.beta_slow = c.beta_slow;
    rope.original_positions = c.original;
    rope.truncate = c.truncate;
    const std::vector<double> expected = YarnFrequencies(rope);
    const std::vector<float> actual = RopeInverseFrequencies(rope, 1);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(std::isfinite(actual[i])) << i;
      EXPECT_NEAR(actual[i] / expected[i], 1.0, 2e-6) << "frequency " << i;
    }
  }
}

TEST(RopeTest, LongropesLongFactorsAreForMoreThanTheOriginalPositions) {
  RopeConfig rope;
  rope.type = RopeType::kLongrope;
  rope.rotary_dim = 4;
  rope.theta = 10'000.0;  // wavelengths 1 and 100
  rope.original_positions = 128;
  rope.short_factors = {1.0, 2.0};
  rope.long_factors = {4.0, 5.0};
  for (const int64_t length : {1, 127, 128, 129, 1000}) {
    const std::vector<float> frequencies = RopeInverseFrequencies(rope, length);
    EXPECT_FLOAT_EQ(1 / frequencies[0], length > 128 ? 4.0f : 1.0f) << length;
    EXPECT_FLOAT_EQ(1 / frequencies[1], length > 128 ? 500.0f : 200.0f) << length;
  }
}

TEST(RopeTest, CosineAndSineHaveAFactorWithYarnAndLongropeAlone) {
  RopeConfig rope;
  rope.original_positions = 4096;
  const auto factor = [&](RopeType type, double scale, double given) {
    rope.type = type;
    rope.factor = scale;
    rope.attention_factor = given;
    return RopeAttentionFactor(rope);
  };
  for (const RopeType type :
       {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kProportional}) {
    EXPECT_EQ(factor(type, 32.0, 1.5), 1.0f) << RopeTypeName(type);
  }
  for (const RopeType type : {RopeType::kYarn, RopeType::kLongrope}) {
    EXPECT_EQ(factor(type, 32.0, 1.5), 1.5f) << RopeTypeName(type);
    EXPECT_EQ(factor(type, 1.0, 0.0), 1.0f) << RopeTypeName(type);
  }
  // ln 32 is 5 ln 2, and ln 4096 is 12 ln 2.
  EXPECT_FLOAT_EQ(factor(RopeType::kYarn, 32.0, 0.0), 1.3465736f);
  EXPECT_FLOAT_EQ(factor(RopeType::kLongrope, 32.0, 0.0), std::sqrt(17.0f / 12.0f));
}

TEST(RopeTest, APositionScaleGrowsWithEachLengthOfTheOriginalPositions) {
  RopeConfig rope;
  rope.rotary_dim = 2;
  rope.position_scale = 0.5;
  rope.original_positions = 4;
  std::vector<float> cosine(9), sine(9);
  RopeTables(rope, 9, 0, 9, cosine.data(), sine.data());
  for (int position = 0; position < 9; ++position) {
    const double scale = 1.0 + 0.5 * std::log(1.0 + position / 4);
    EXPECT_NEAR(cosine[position], std::cos(position) * scale, 1e-6) << position;
    EXPECT_NEAR(sine[position], std::sin(position) * scale, 1e-6) << position;
  }
}

TEST(RopeTest, PositionZeroDoesNotTurn) {
  RopeConfig rope;
  rope.rotary_dim = 8;
  std::vector<float> cosine(8), sine(8);
  RopeTables(rope, 2, 0, 2, cosine.data(), sine.data());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(cosine[i], 1.0f);
    EXPECT_EQ(sine[i], 0.0f);
  }
  // The first dimension turns by one radian a position.
  EXPECT_FLOAT_EQ(cosine[4], std::cos(1.0f));
  EXPECT_FLOAT_EQ(sine[4], std::sin(1.0f));
}

}  // namespace
}  // namespace megatrain

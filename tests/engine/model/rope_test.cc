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
  ASSERT_GE(cases.size(), 12u);
  for (const auto& [name, reference] : cases.items()) {
    SCOPED_TRACE(name);
    const auto config = ParseModelConfig(reference["config"].dump(), name);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto expected = reference["inverse_frequencies"].get<std::vector<float>>();
    const std::vector<float> actual = RopeInverseFrequencies(*config);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      // PyTorch's power is good to one unit in the last place, ours to a half; what follows rounds
      // a few times more.
      EXPECT_NEAR(actual[i] / expected[i], 1.0, 5e-7) << "frequency " << i;
    }

    const auto positions = reference["positions"].get<std::vector<int64_t>>();
    const int64_t count = positions.back() + 1, half = config->head_dim / 2;
    std::vector<float> cosine(count * half), sine(count * half);
    // In two pieces, as a trainer takes many.
    const int64_t begin = count / 3, at = begin * (config->head_dim / 2);
    RopeTables(*config, 0, begin, cosine.data(), sine.data());
    RopeTables(*config, begin, count, cosine.data() + at, sine.data() + at);
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

TEST(RopeTest, PositionZeroDoesNotTurn) {
  ModelConfig config;
  config.head_dim = 8;
  std::vector<float> cosine(8), sine(8);
  RopeTables(config, 0, 2, cosine.data(), sine.data());
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

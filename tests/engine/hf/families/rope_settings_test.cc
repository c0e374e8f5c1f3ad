// RoPE's settings in config.json: what is taken where they are given twice, and where they are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/hf/families/small_config.h"

namespace megatrain {
namespace {

// The settings of a small Llama with `rope_scaling`.
RopeConfig Rope(const json& scaling, const json& more = json::object()) {
  json config = more;
  config["rope_scaling"] = scaling;
  return Describe("llama", config).ropes[0];
}

TEST(RopeSettings, YarnHasDefaults) {
  const RopeConfig rope = Rope({{"rope_type", "yarn"}, {"factor", 4.0}});
  EXPECT_EQ(rope.type, RopeType::kYarn);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(rope.theta, 1e4);
  EXPECT_EQ(rope.original_positions, 256) << "max_position_embeddings";
  EXPECT_EQ(rope.beta_fast, 32.0);
  EXPECT_EQ(rope.beta_slow, 1.0);
  EXPECT_TRUE(rope.truncate);
  EXPECT_NEAR(rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-12);
  // What does not lengthen sequences does not sharpen scores.
  EXPECT_EQ(Rope({{"rope_type", "yarn"}, {"factor", 1.0}}).attention_factor, 1.0);
}

TEST(RopeSettings, YarnTakesWhatIsGiven) {
  const RopeConfig rope = Rope({{"rope_type", "yarn"},
                                {"factor", 4.0},
                                {"original_max_position_embeddings", 64},
                                {"beta_fast", 16.0},
                                {"beta_slow", 2.0},
                                {"truncate", false},
                                {"mscale", 2.0},
                                {"mscale_all_dim", 3.0},
                                {"attention_factor", 1.25}});
  EXPECT_EQ(rope.original_positions, 64);
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.beta_slow, 2.0);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(rope.attention_factor, 1.25) << "whatever the other two say";
  // The ramp is one of logarithms of theta.
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  ExpectRefused("llama", {{"rope_scaling", yarn}, {"rope_theta", 1.0}}, "rope_theta",
                "must be greater than 1");
  EXPECT_EQ(Describe("llama", {{"rope_theta", 1.0}}).ropes[0].theta, 1.0);
}

TEST(RopeSettings, TheNewerKeyOfTheTypeCounts) {
  const json both = {{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2.0}};
  EXPECT_EQ(Rope(both).type, RopeType::kLinear);
  EXPECT_EQ(Rope({{"type", "linear"}, {"factor", 2.0}}).type, RopeType::kLinear);
  // Longer sequences, which alone it turns in another way, are refused.
  EXPECT_EQ(Rope({{"type", "dynamic"}, {"factor", 2.0}}).type, RopeType::kDefault);
}

TEST(RopeSettings, AnEmptyObjectIsNone) {
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    const RopeConfig rope =
        Describe("llama", {{key, json::object()}, {"rope_theta", 5e4}}).ropes[0];
    EXPECT_EQ(rope.type, RopeType::kDefault) << key;
    EXPECT_EQ(rope.theta, 5e4) << key;
  }
}

TEST(RopeSettings, ThetaWithinTheObjectCounts) {
  const json within = {{"rope_type", "default"}, {"rope_theta", 5e4}};
  EXPECT_EQ(Describe("llama", {{"rope_parameters", within}, {"rope_theta", 2e4}}).ropes[0].theta,
            5e4);
  const json without = {{"rope_type", "default"}};
  EXPECT_EQ(Describe("llama", {{"rope_parameters", without}, {"rope_theta", 2e4}}).ropes[0].theta,
            2e4);
}

TEST(RopeSettings, KindsOfLayersHaveObjectsOfTheirOwn) {
  const json full = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}};
  const json sliding = {{"rope_type", "default"}, {"rope_theta", 3e4}};
  const auto ropes = [](const json& parameters) {
    return Describe("gemma3_text", {{"rope_parameters", parameters}, {"rope_local_base_freq", 7e4}})
        .ropes;
  };
  const std::vector<RopeConfig> both =
      ropes({{"full_attention", full}, {"sliding_attention", sliding}});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].type, RopeType::kLinear);
  EXPECT_EQ(both[0].factor, 8.0);
  EXPECT_EQ(both[0].theta, 2e6);
  EXPECT_EQ(both[1].type, RopeType::kDefault);
  EXPECT_EQ(both[1].theta, 3e4);
  for (const json& one :
       {json::object({{"full_attention", full}}),
        json::object({{"full_attention", full}, {"sliding_attention", nullptr}})}) {
    const std::vector<RopeConfig> alone = ropes(one);
    ASSERT_EQ(alone.size(), 2u);
    EXPECT_EQ(alone[0].theta, 2e6) << one;
    EXPECT_EQ(alone[1].theta, 7e4) << one;
  }
  ExpectRefused("gemma3_text", {{"rope_parameters", {{"linear_attention", json::object()}}}},
                "rope_parameters", "\"linear_attention\" is not expected here");
}

TEST(RopeSettings, LongropesFactorMayBeGiven) {
  const std::vector<double> factors(6, 1.0);  // half of a head's 12 elements
  const json rope = {
      {"type", "longrope"}, {"short_factor", factors}, {"long_factor", factors}, {"factor", 8.0}};
  const ModelDescription model =
      Describe("phi3", {{"rope_scaling", rope}, {"max_position_embeddings", 8192}});
  EXPECT_EQ(model.ropes[0].factor, 8.0);
  EXPECT_EQ(model.ropes[0].original_positions, 4096);
  json wrong = rope;
  wrong["short_factor"] = std::vector<double>(7, 1.0);
  ExpectRefused("phi3", {{"rope_scaling", wrong}}, "rope_scaling.short_factor", "6 numbers");
}

TEST(RopeSettings, OriginalPositionsBesideGoIntoWhatAFamilyHasWithoutAnObject) {
  for (const auto& [family, absent] :
       {std::pair{"ministral3", 16384}, std::pair{"gpt_oss", 4096}}) {
    EXPECT_EQ(Describe(family).ropes[0].original_positions, absent) << family;
    const RopeConfig rope = Describe(family, {{"original_max_position_embeddings", 64}}).ropes[0];
    EXPECT_EQ(rope.type, RopeType::kYarn) << family;
    EXPECT_EQ(rope.original_positions, 64) << family;
  }
}

// Each is of other families.
TEST(RopeSettings, KeysThatAFamilyDoesNotReadAreRefused) {
  for (const json& key :
       {json::object({{"llama_4_scaling_beta", 0.1}}), json::object({{"mrope_section", {1, 2}}}),
        json::object({{"mrope_interleaved", true}})}) {
    json rope = key;
    rope["rope_type"] = "default";
    ExpectRefused("llama", {{"rope_scaling", rope}}, "unknown key rope_scaling.");
  }
}

}  // namespace
}  // namespace megatrain

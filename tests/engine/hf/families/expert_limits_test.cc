// The largest numbers and sizes of experts that are accepted.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "engine/hf/config/config_readers.h"
#include "tests/engine/hf/families/small_config.h"

namespace megatrain {
namespace {

TEST(ExpertLimits, TheLargestNumbersAreAccepted) {
  const ModelDescription chosen = Describe("mixtral", {{"num_local_experts", kChosenExpertsMax},
                                                       {"num_experts_per_tok", kChosenExpertsMax}});
  EXPECT_EQ(chosen.layers[0].experts.chosen, kChosenExpertsMax);
  // All experts of all layers.
  constexpr int64_t kLayers = kAllExpertsMax / kExpertsMax;
  const json all = {{"num_local_experts", kExpertsMax}, {"intermediate_size", 2}};
  json most = all;
  most["num_hidden_layers"] = kLayers;
  EXPECT_EQ(Describe("mixtral", most).layers.back().experts.count, kExpertsMax);
  most["num_hidden_layers"] = kLayers + 1;
  ExpectRefused("mixtral", most, "num_local_experts", "more than 131072");
}

TEST(ExpertLimits, TheLargestSharedExpertIsAccepted) {
  json config = {{"n_routed_experts", 16},
                 {"moe_intermediate_size", 1 << 16},
                 {"n_shared_experts", kIntermediateMax >> 16}};
  EXPECT_EQ(Describe("glm4_moe", config).layers[7].experts.shared_intermediate, kIntermediateMax);
  config["n_shared_experts"] = (kIntermediateMax >> 16) + 1;
  ExpectRefused("glm4_moe", config, "n_shared_experts", "together");
}

// The class's own number of dense layers is no error where there are fewer layers.
TEST(ExpertLimits, ASmallModelMayHaveDenseLayersAlone) {
  const json small = {{"n_routed_experts", 24}, {"moe_intermediate_size", 20}};
  for (const int layers : {1, 3, 4}) {
    json config = small;
    config["num_hidden_layers"] = layers;
    const ModelDescription model = Describe("deepseek_v3", config);
    ASSERT_EQ(model.layer_count(), layers);
    EXPECT_EQ(model.layers.back().experts.count, layers > 3 ? 24 : 0);
    EXPECT_EQ(model.layers[0].experts.count, 0);
  }
}

TEST(ExpertLimits, SharedExpertsOfGatedFamiliesHaveASizeOfTheirOwn) {
  for (const char* const family : {"qwen3_next", "qwen3_5_moe_text"}) {
    const ExpertsDescription experts =
        Describe(family, {{"shared_expert_intermediate_size", 20}, {"moe_intermediate_size", 12}})
            .layers[0]
            .experts;
    EXPECT_EQ(experts.shared_intermediate, 20) << family;
    EXPECT_EQ(experts.intermediate, 12) << family;
  }
}

}  // namespace
}  // namespace megatrain

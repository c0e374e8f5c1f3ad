// The defaults of the families' readers for absent keys.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/model_description.h"
#include "tests/engine/hf/families/small_config.h"

namespace megatrain {
namespace {

constexpr char kNone[] = "{}";
// Families without a shape of their own need these keys.
constexpr char kShape[] = R"({"vocab_size": 10, "hidden_size": 128, "intermediate_size": 16,
                              "num_hidden_layers": 1, "num_attention_heads": 64})";
// Only a dense layer shows the size of dense units.
constexpr char kDenseFirst[] = R"({"mlp_only_layers": [0]})";
// The class's hidden size is no multiple of its heads.
constexpr char kHeadDim[] = R"({"head_dim": 128})";

struct Defaults {
  const char* family;
  const char* given;  // besides model_type
  // `intermediate` is of layer 0; 0 if it has experts alone.
  int64_t vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim, positions, padding;
  bool tied;
  double epsilon, theta;  // `theta` is of rope 0
  // Of the last layer.
  int64_t experts = 0, chosen = 0, expert_intermediate = 0, shared_intermediate = 0;
};

constexpr Defaults kDefaults[] = {
    {"llama", kShape, 10, 128, 16, 1, 64, 64, 2, 2048, -1, false, 1e-6, 1e4},
    {"qwen2", kShape, 10, 128, 16, 1, 64, 32, 2, 32768, -1, false, 1e-6, 1e4},
    {"qwen3", kShape, 10, 128, 16, 1, 64, 32, 128, 32768, -1, false, 1e-6, 1e4},
    {"granite", kNone, 32000, 4096, 11008, 32, 32, 32, 128, 2048, -1, false, 1e-6, 1e4},
    {"olmo2", kNone, 50304, 4096, 11008, 32, 32, 32, 128, 2048, 1, false, 1e-5, 1e4},
    {"olmo3", kNone, 50304, 4096, 11008, 32, 32, 32, 128, 2048, 1, false, 1e-5, 5e5},
    {"glm4", kNone, 151552, 4096, 13696, 40, 32, 2, 128, 131072, 151329, false, 1.5625e-7, 1e4},
    {"mistral", kNone, 32000, 4096, 14336, 32, 32, 8, 128, 131072, -1, false, 1e-6, 1e4},
    {"ministral3", kNone, 131072, 4096, 14336, 34, 32, 8, 128, 262144, 11, false, 1e-5, 1e6},
    {"phi3", kNone, 32064, 3072, 8192, 32, 32, 32, 96, 4096, 32000, false, 1e-5, 1e4},
    {"smollm3", kNone, 128256, 2048, 11008, 36, 16, 4, 128, 32768, 128004, true, 1e-6, 2e6},
    {"gemma2", kNone, 256000, 2304, 9216, 26, 8, 4, 256, 8192, 0, true, 1e-6, 1e4},
    {"gemma3_text", kNone, 262208, 2304, 9216, 26, 8, 4, 256, 131072, 0, true, 1e-6, 1e6},
    {"gemma4_text", kNone, 262144, 2304, 9216, 30, 8, 4, 256, 131072, 0, true, 1e-6, 1e6},
    {"exaone4", kNone, 102400, 4096, 16384, 32, 32, 32, 128, 2048, -1, false, 1e-5, 1e4},
    {"seed_oss", kNone, 155136, 4096, 27648, 64, 80, 8, 128, 524288, 1, false, 1e-6, 1e4},
    {"ernie4_5", kNone, 103424, 1024, 3072, 18, 16, 2, 128, 131072, 0, true, 1e-5, 5e5},
    {"mixtral", kNone, 32000, 4096, 0, 32, 32, 8, 128, 131072, -1, false, 1e-5, 1e6, 8, 2, 14336},
    {"qwen3_moe", kDenseFirst, 151936, 2048, 6144, 24, 32, 4, 64, 32768, -1, false, 1e-6, 1e4, 128,
     8, 768},
    {"gpt_oss", kNone, 201088, 2880, 0, 36, 64, 8, 64, 131072, -1, false, 1e-5, 1.5e5, 128, 4,
     2880},
    {"glm4_moe", kHeadDim, 151552, 4096, 10944, 46, 96, 8, 128, 131072, -1, false, 1e-5, 1e4, 128,
     8, 1408, 1408},
    {"deepseek_v3", kNone, 129280, 7168, 18432, 61, 128, 128, 192, 4096, -1, false, 1e-6, 1e4, 256,
     8, 2048, 2048},
    {"qwen3_next", kDenseFirst, 151936, 2048, 5632, 48, 16, 2, 256, 32768, -1, false, 1e-6, 1e4,
     512, 10, 512, 512},
    {"qwen3_5_text", kNone, 248320, 4096, 12288, 32, 16, 4, 256, 32768, -1, false, 1e-6, 1e4},
    {"qwen3_5_moe_text", kNone, 248320, 2048, 0, 40, 16, 2, 256, 32768, -1, false, 1e-6, 1e4, 256,
     8, 512, 512},
};

// A configuration that says no more than its family, or little more.
TEST(Defaults, AConfigurationMayLeaveOutTheShape) {
  for (const Defaults& wanted : kDefaults) {
    SCOPED_TRACE(wanted.family);
    json config = json::parse(wanted.given);
    config["model_type"] = wanted.family;
    const auto model = Parse(config);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->vocabulary, wanted.vocabulary);
    EXPECT_EQ(model->hidden, wanted.hidden);
    EXPECT_EQ(model->layers[0].feed_forward.intermediate, wanted.intermediate);
    EXPECT_EQ(model->layer_count(), wanted.layers);
    const AttentionDescription& attention = FirstAttention(*model);
    EXPECT_EQ(attention.heads, wanted.heads);
    EXPECT_EQ(attention.kv_heads, wanted.kv_heads);
    EXPECT_EQ(attention.head_dim, wanted.head_dim);
    EXPECT_EQ(model->max_positions, wanted.positions);
    EXPECT_EQ(model->padding_id, wanted.padding);
    EXPECT_EQ(model->tied_embeddings, wanted.tied);
    EXPECT_EQ(model->norm_epsilon, wanted.epsilon);
    EXPECT_EQ(model->ropes[0].theta, wanted.theta);
    const ExpertsDescription& experts = model->layers.back().experts;
    EXPECT_EQ(experts.count, wanted.experts);
    EXPECT_EQ(experts.chosen, wanted.chosen);
    EXPECT_EQ(experts.intermediate, wanted.expert_intermediate);
    EXPECT_EQ(experts.shared_intermediate, wanted.shared_intermediate);
  }
}

TEST(Defaults, WindowsHaveTheSizesAndTheLayersOfTheClasses) {
  std::vector<int64_t> late(30, 0);
  late[28] = late[29] = 4096;
  const json used = {{"use_sliding_window", true}, {"num_hidden_layers", 30}};
  EXPECT_EQ(Windows(Describe("qwen2", used)), late);
  EXPECT_EQ(Windows(Describe("qwen3", used)), late);
  EXPECT_EQ(Windows(Describe("qwen3_moe", {{"use_sliding_window", true}})),
            std::vector<int64_t>(8, 4096));
  EXPECT_EQ(Windows(Describe("gemma3_text")),
            (std::vector<int64_t>{4096, 4096, 4096, 4096, 4096, 0, 4096, 4096}));
  EXPECT_EQ(Windows(Describe("phi3")), std::vector<int64_t>(8, 0));
  EXPECT_EQ(Windows(Describe("phi3", {{"sliding_window", 9}})), std::vector<int64_t>(8, 9));
}

}  // namespace
}  // namespace megatrain

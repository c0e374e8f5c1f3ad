// Small configurations of the families, and what their readers make of them.
#ifndef MEGATRAIN_TESTS_ENGINE_HF_FAMILIES_SMALL_CONFIG_H_
#define MEGATRAIN_TESTS_ENGINE_HF_FAMILIES_SMALL_CONFIG_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/hf/config_json.h"

namespace megatrain {

using nlohmann::json;

// A small model of a family; `more` is put over it.
inline json Config(const std::string& family, const json& more = json::object()) {
  const int kv_heads = family == "deepseek_v3" ? 4 : 2;  // those of queries: it has no groups
  json config = {{"model_type", family},     {"vocab_size", 131},
                 {"hidden_size", 48},        {"num_hidden_layers", 8},
                 {"num_attention_heads", 4}, {"num_key_value_heads", kv_heads},
                 {"intermediate_size", 64},  {"max_position_embeddings", 256},
                 {"pad_token_id", nullptr}};
  if (family == "gemma4_text") config["hidden_size_per_layer_input"] = 0;  // the default is 256
  config.update(more);
  return config;
}

inline absl::StatusOr<ModelDescription> Parse(const json& config) {
  return ParseModelDescription(config.dump(), "DIR/config.json");
}

inline ModelDescription Describe(const std::string& family, const json& more = json::object()) {
  const auto model = Parse(Config(family, more));
  EXPECT_TRUE(model.ok()) << family << ": " << model.status();
  return model.ok() ? *model : ModelDescription();
}

inline void ExpectRefused(const std::string& family, const json& more, const std::string& key,
                          const std::string& what = "") {
  SCOPED_TRACE(family + " " + more.dump());
  const auto model = Parse(Config(family, more));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()),
              testing::AllOf(testing::HasSubstr("DIR/config.json: "), testing::HasSubstr(key),
                             testing::HasSubstr(what)));
}

inline std::vector<int64_t> Windows(const ModelDescription& model) {
  std::vector<int64_t> windows;
  for (const LayerDescription& layer : model.layers) windows.push_back(layer.attention.window);
  return windows;
}

// Each layer's rope, which its queries and its keys have.
inline std::vector<int> Ropes(const ModelDescription& model) {
  std::vector<int> ropes;
  for (const LayerDescription& layer : model.layers) {
    EXPECT_EQ(layer.attention.key_rope, layer.attention.query_rope);
    ropes.push_back(layer.attention.key_rope);
  }
  return ropes;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_HF_FAMILIES_SMALL_CONFIG_H_

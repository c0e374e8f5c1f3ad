// config.json of wrappers: text_config, and what stands around it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine/hf/config/ignored_tensors.h"
#include "engine/hf/config_json.h"
#include "engine/model/parameter_count.h"

namespace megatrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// As google/gemma-3-4b-it has it, but for the vision tower.
constexpr char kGemma3[] = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
  "boi_token_index": 255999, "eoi_token_index": 256000, "image_token_index": 262144,
  "eos_token_id": [1, 106], "initializer_range": 0.02, "mm_tokens_per_image": 256,
  "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                  "num_hidden_layers": 34, "sliding_window": 1024,
                  "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
  "vision_config": {"model_type": "siglip_vision_model", "anything": true}
})";
// Shapes as of google/gemma-4-31b, in the keys that transformers has.
constexpr char kGemma4[] = R"({
  "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
  "audio_config": null, "audio_token_id": 258881, "boa_token_id": 256000, "boi_token_id": 255999,
  "eoa_token_index": 258883, "eoi_token_id": 258882, "image_token_id": 258880,
  "video_token_id": 258884, "initializer_range": 0.02, "tie_word_embeddings": true,
  "text_config": {"attention_k_eq_v": true, "final_logit_softcapping": 30.0,
                  "global_head_dim": 512, "head_dim": 256, "hidden_size": 5376,
                  "hidden_size_per_layer_input": 0, "intermediate_size": 21504,
                  "max_position_embeddings": 262144, "model_type": "gemma4_text",
                  "num_attention_heads": 32, "num_global_key_value_heads": 4,
                  "num_hidden_layers": 60, "num_key_value_heads": 16, "sliding_window": 1024,
                  "use_bidirectional_attention": "vision"},
  "vision_config": {"model_type": "gemma4_vision", "anything": true}
})";
// As mistralai/Mistral-Small-3.1-24B-Instruct-2503 has it.
constexpr char kMistral3[] = R"({
  "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
  "image_token_index": 10, "multimodal_projector_bias": false, "projector_hidden_act": "gelu",
  "spatial_merge_size": 2, "vision_feature_layer": -1, "torch_dtype": "bfloat16",
  "text_config": {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
                  "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 32768,
                  "max_position_embeddings": 131072, "model_type": "mistral",
                  "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
                  "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0, "sliding_window": null,
                  "use_cache": true, "vocab_size": 131072},
  "vision_config": {"model_type": "pixtral"}
})";

// Qwen 3.5's keys, with the shapes of transformers' class.
constexpr char kQwen35[] = R"({
  "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
  "image_token_id": 248056, "video_token_id": 248057, "vision_start_token_id": 248053,
  "vision_end_token_id": 248054, "tie_word_embeddings": false,
  "text_config": {"model_type": "qwen3_5_moe_text", "attention_bias": false,
                  "attention_dropout": 0.0, "attn_output_gate": true, "dtype": "bfloat16",
                  "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256,
                  "hidden_act": "silu", "hidden_size": 2048, "linear_conv_kernel_dim": 4,
                  "linear_key_head_dim": 128, "linear_num_key_heads": 16,
                  "linear_num_value_heads": 32, "linear_value_head_dim": 128,
                  "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144,
                  "mlp_only_layers": [], "moe_intermediate_size": 512,
                  "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
                  "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8,
                  "num_hidden_layers": 40, "num_key_value_heads": 2,
                  "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
                  "vocab_size": 248320,
                  "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
                                      "partial_rotary_factor": 0.25, "rope_theta": 10000000,
                                      "rope_type": "default"}},
  "vision_config": {"model_type": "qwen3_5_moe_vision", "depth": 27}
})";

absl::StatusOr<ModelDescription> Parse(const json& config) {
  return ParseModelDescription(config.dump(), "DIR/config.json");
}

ModelDescription Describe(const json& config) {
  const auto model = Parse(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : ModelDescription();
}

// Refused with `at`, a JSON pointer, set to `value`.
void ExpectRefused(const char* config, const std::string& at, const json& value,
                   const std::string& key, const std::string& what) {
  json changed = json::parse(config);
  changed[json::json_pointer(at)] = value;
  SCOPED_TRACE(at + " " + value.dump());
  const auto model = Parse(changed);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()),
              AllOf(HasSubstr("DIR/config.json: "), HasSubstr(key), HasSubstr(what)));
}

TEST(WrappersTest, WhatOnlyTheTextModelsClassLooksAtIsLeftOut) {
  json gemma = json::parse(kGemma3), mistral = json::parse(kMistral3);
  gemma["text_config"]["final_logit_softcapping"] = 2.0;
  EXPECT_EQ(Describe(gemma).logit_softcap, 0.0);
  mistral["text_config"]["sliding_window"] = 7;
  mistral["text_config"]["layer_types"] = json::array({"full_attention"});
  for (const LayerDescription& layer : Describe(mistral).layers) {
    EXPECT_EQ(layer.attention.window, 7);
  }
}

TEST(WrappersTest, PublishedModelsAreDescribed) {
  const ModelDescription gemma = Describe(json::parse(kGemma3));
  EXPECT_EQ(gemma.family, "gemma3_text");
  EXPECT_EQ(gemma.wrapper.family, "gemma3");
  EXPECT_EQ(gemma.vocabulary, 262208);
  EXPECT_EQ(gemma.layers[0].attention.heads, 8);
  EXPECT_EQ(gemma.layers[0].attention.head_dim, 256);
  EXPECT_TRUE(gemma.tied_embeddings);
  EXPECT_EQ(gemma.padding_id, 0);
  EXPECT_EQ(ParameterCount(gemma), 3880263168);
  EXPECT_EQ(gemma.wrapper.OnDisk("model.norm.weight"), "language_model.model.norm.weight");
  EXPECT_EQ(gemma.wrapper.OnDisk("lm_head.weight"), "language_model.lm_head.weight");

  const ModelDescription four = Describe(json::parse(kGemma4));
  EXPECT_EQ(four.family, "gemma4_text");
  EXPECT_EQ(four.wrapper.family, "gemma4");
  EXPECT_EQ(ParameterCount(four), 30697345280);
  EXPECT_EQ(four.wrapper.OnDisk("model.norm.weight"), "model.language_model.norm.weight");
  EXPECT_TRUE(four.wrapper.Carries("model.embed_vision.embedding_projection.weight"));
  EXPECT_TRUE(four.wrapper.Carries("model.audio_tower.anything"));

  const ModelDescription mistral = Describe(json::parse(kMistral3));
  EXPECT_EQ(mistral.family, "mistral");
  EXPECT_EQ(mistral.wrapper.family, "mistral3");
  EXPECT_EQ(mistral.layers[0].attention.window, 0);
  EXPECT_EQ(mistral.ropes[0].theta, 1e9);

  const ModelDescription qwen = Describe(json::parse(kQwen35));
  EXPECT_EQ(qwen.family, "qwen3_5_moe_text");
  EXPECT_EQ(qwen.wrapper.family, "qwen3_5_moe");
  EXPECT_EQ(ParameterCount(qwen), 34660610688);
  EXPECT_EQ(qwen.ropes[0].rotary_dim, 64);
  EXPECT_EQ(qwen.ropes[0].theta, 1e7);
  EXPECT_EQ(qwen.wrapper.OnDisk("model.norm.weight"), "model.language_model.norm.weight");
  EXPECT_EQ(qwen.wrapper.OnDisk("lm_head.weight"), "lm_head.weight");
  EXPECT_TRUE(qwen.wrapper.Carries("model.visual.merger.norm.weight"));
  EXPECT_TRUE(qwen.wrapper.Carries("mtp.fc.weight"));
}

TEST(WrappersTest, TheOuterKeyTiesEmbeddings) {
  for (const char* text : {kGemma3, kMistral3}) {
    json config = json::parse(text);
    EXPECT_TRUE(Describe(config).tied_embeddings);
    config["text_config"]["tie_word_embeddings"] = false;
    EXPECT_TRUE(Describe(config).tied_embeddings);
    config["tie_word_embeddings"] = false;
    config["text_config"]["tie_word_embeddings"] = true;
    EXPECT_FALSE(Describe(config).tied_embeddings);
  }
  // Without the key it is as in the wrapper's class.
  for (const char* text : {kGemma4, kQwen35}) {
    json config = json::parse(text);
    config.erase("tie_word_embeddings");
    EXPECT_EQ(Describe(config).tied_embeddings, text == kGemma4);
  }
}

TEST(WrappersTest, WhatIsCarriedIsNotIgnored) {
  const json config = json::parse(kQwen35);
  EXPECT_TRUE(FindIgnoredTensors(Describe(config), {"mtp.fc.weight"}).empty());
  // The text model alone does not carry it.
  const ModelDescription text = Describe(config["text_config"]);
  EXPECT_EQ(FindIgnoredTensors(text, {"mtp.fc.weight"}).size(), 1u);
}

TEST(WrappersTest, TheInnerKeyPads) {
  json config = json::parse(kMistral3);
  config["pad_token_id"] = 4;
  EXPECT_EQ(Describe(config).padding_id, -1);
  config["text_config"]["pad_token_id"] = 11;
  EXPECT_EQ(Describe(config).padding_id, 11);
}

TEST(WrappersTest, TextModelsMayBeOfSeveralFamilies) {
  json config = json::parse(kMistral3);
  config["text_config"].erase("model_type");
  EXPECT_EQ(Describe(config).family, "mistral");
  config["text_config"]["model_type"] = "ministral3";
  config["text_config"].erase("rope_theta");
  EXPECT_EQ(Describe(config).family, "ministral3");
  ExpectRefused(kMistral3, "/text_config/model_type", "llama", "text_config.model_type",
                "\"llama\" is not supported within mistral3; supported are mistral, ministral3");
  ExpectRefused(kMistral3, "/text_config/model_type", "mystery", "text_config.model_type",
                "\"mystery\" is not supported");
  ExpectRefused(kGemma3, "/text_config/model_type", "gemma3", "text_config.model_type",
                "supported are gemma3_text");
}

TEST(WrappersTest, ErrorsNameTheKeyAndWhereItStands) {
  ExpectRefused(kGemma3, "/text_config", nullptr, "text_config", "is missing");
  ExpectRefused(kGemma3, "/text_config", json::array(), "text_config", "must be an object");
  ExpectRefused(kGemma3, "/text_config", "gemma3_text", "text_config", "must be an object");
  ExpectRefused(kGemma3, "/text_config/hidden_size", 0, "text_config.hidden_size", "must be");
  ExpectRefused(kGemma3, "/text_config/mystery", 1, "unknown key text_config.mystery", "");
  ExpectRefused(kGemma3, "/mystery", 1, "unknown key mystery", "");
  ExpectRefused(kGemma3, "/text_config/use_bidirectional_attention", true,
                "text_config.use_bidirectional_attention", "not supported");
  ExpectRefused(kGemma3, "/use_bidirectional_attention", true,
                "unknown key use_bidirectional_attention", "");
  ExpectRefused(kGemma3, "/tie_word_embeddings", "yes", "tie_word_embeddings", "true or false");
  ExpectRefused(kGemma3, "/language_model_only", true, "language_model_only", "not supported");
  ExpectRefused(kMistral3, "/quantization_config", {{"quant_method", "fp8"}}, "quantization_config",
                "");
  ExpectRefused(kGemma3, "/architectures", {"Gemma3ForSequenceClassification"}, "architectures",
                "only ...ForConditionalGeneration is");
  ExpectRefused(kGemma3, "/text_config/architectures", {"Gemma3Model"}, "text_config.architectures",
                "only ...ForCausalLM is");
  ExpectRefused(kGemma3, "/text_config/vision_config", json::object(),
                "unknown key text_config.vision_config", "");
}

}  // namespace
}  // namespace megatrain

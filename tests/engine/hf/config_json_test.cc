#include "engine/hf/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/hf/config/model_family.h"
#include "engine/hf/config/wrapper_family.h"
#include "engine/hf/hf_format.h"

namespace megatrain {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Llama-3.1-8B as published.
constexpr char kLlama31[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})";

// Qwen2.5-7B-Instruct as published.
constexpr char kQwen25[] = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
  "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
  "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false,
  "vocab_size": 152064})";

// Qwen3-0.6B as published.
constexpr char kQwen3[] = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

absl::StatusOr<ModelDescription> Parse(const json& config) {
  return ParseModelDescription(config.dump(), "DIR/config.json");
}

// A small Llama with `key` set to `value`, parsed.
absl::StatusOr<ModelDescription> With(const std::string& key, json value,
                                      const char* base = kLlama31) {
  json config = json::parse(base);
  config[key] = std::move(value);
  return Parse(config);
}

void ExpectRefused(const absl::StatusOr<ModelDescription>& config, const std::string& key,
                   const std::string& what = "") {
  SCOPED_TRACE(key);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()),
              AllOf(HasSubstr("DIR/config.json: "), HasSubstr(key), HasSubstr(what)));
}

TEST(ConfigJsonTest, ReadsLlama31) {
  const auto config = ParseModelDescription(kLlama31, "x");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->vocabulary, 128256);
  EXPECT_EQ(config->hidden, 4096);
  EXPECT_EQ(config->layer_count(), 32);
  EXPECT_EQ(config->layers[0].attention.heads, 32);
  EXPECT_EQ(config->layers[0].attention.kv_heads, 8);
  EXPECT_EQ(config->layers[0].attention.head_dim, 128);
  EXPECT_EQ(config->layers[0].feed_forward.intermediate, 14336);
  EXPECT_EQ(config->max_positions, 131072);
  EXPECT_EQ(config->norm_epsilon, 1e-5);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_FALSE(config->layers[0].attention.qkv_bias);
  EXPECT_EQ(config->layers[0].attention.qk_norm, QkNorm::kNone);
  EXPECT_EQ(config->ropes[0].type, RopeType::kLlama3);
  EXPECT_EQ(config->ropes[0].theta, 500000.0);
  EXPECT_EQ(config->ropes[0].factor, 8.0);
  EXPECT_EQ(config->ropes[0].low_frequency_factor, 1.0);
  EXPECT_EQ(config->ropes[0].high_frequency_factor, 4.0);
  EXPECT_EQ(config->ropes[0].original_positions, 8192);
}

TEST(ConfigJsonTest, ReadsQwen25) {
  const auto config = ParseModelDescription(kQwen25, "x");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "qwen2");
  EXPECT_TRUE(config->layers[0].attention.qkv_bias);
  EXPECT_EQ(config->layers[0].attention.qk_norm, QkNorm::kNone);
  EXPECT_EQ(config->layers[0].attention.head_dim, 128);
  EXPECT_EQ(config->ropes[0].type, RopeType::kDefault);
  EXPECT_EQ(config->ropes[0].theta, 1e6);
}

TEST(ConfigJsonTest, ReadsQwen3) {
  const auto config = ParseModelDescription(kQwen3, "x");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "qwen3");
  EXPECT_EQ(config->layers[0].attention.qk_norm, QkNorm::kHead);
  EXPECT_FALSE(config->layers[0].attention.qkv_bias);
  EXPECT_EQ(config->layers[0].attention.head_dim, 128);  // not 1024 / 16
  EXPECT_TRUE(config->tied_embeddings);
}

TEST(ConfigJsonTest, ReadsTheRopeFormOfTransformers5) {
  json config = json::parse(kLlama31);
  json rope = config["rope_scaling"];
  rope["rope_theta"] = 12345.0;
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = rope;
  const auto parsed = Parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->ropes[0].type, RopeType::kLlama3);
  EXPECT_EQ(parsed->ropes[0].theta, 12345.0);
  EXPECT_EQ(parsed->ropes[0].factor, 8.0);
  // Both forms at once are one too many, unless they agree.
  config["rope_scaling"] = rope;
  EXPECT_TRUE(Parse(config).ok());
  config["rope_scaling"]["factor"] = 4.0;
  ExpectRefused(Parse(config), "rope_scaling", "differs from rope_parameters");
}

TEST(ConfigJsonTest, AbsentKeysHaveTheDefaultsOfTransformers) {
  const auto config = Parse({{"model_type", "llama"},
                             {"vocab_size", 10},
                             {"hidden_size", 8},
                             {"intermediate_size", 16},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 2}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layers[0].attention.kv_heads, 2);
  EXPECT_EQ(config->layers[0].attention.head_dim, 4);
  EXPECT_EQ(config->max_positions, 2048);
  EXPECT_EQ(config->norm_epsilon, 1e-6);
  EXPECT_EQ(config->initializer_range, 0.02);
  EXPECT_EQ(config->ropes[0].theta, 10000.0);
}

TEST(ConfigJsonTest, RefusesAnotherFamilyByName) {
  const auto config = With("model_type", "mamba");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kUnimplemented);
  std::vector<std::string> names = ModelFamilyNames();
  for (const std::string& name : WrapperFamilyNames()) names.push_back(name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(config.status().message(),
            "DIR/config.json: model_type: \"mamba\" is not supported; supported are " +
                absl::StrJoin(names, ", "));
  json without = json::parse(kLlama31);
  without.erase("model_type");
  ExpectRefused(Parse(without), "model_type", "missing");
}

TEST(ConfigJsonTest, RefusesUnknownKeysByName) {
  json config = json::parse(kLlama31);
  config["logit_softcapping"] = 30.0;
  config["embedding_multiplier"] = 12;
  ExpectRefused(Parse(config), "unknown keys embedding_multiplier, logit_softcapping");
  ExpectRefused(With("num_hiden_layers", 4), "unknown key num_hiden_layers");
  ExpectRefused(With("rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"mystery", 1}}),
                "unknown key rope_scaling.mystery");
}

TEST(ConfigJsonTest, IgnoresKeysThatDoNotChangeTheMathematics) {
  for (const char* key :
       {"use_cache", "torch_dtype", "dtype", "transformers_version", "_name_or_path",
        "unsloth_version", "output_attentions", "temperature", "id2label"}) {
    const auto config = With(key, "anything");
    EXPECT_TRUE(config.ok()) << key << ": " << config.status();
  }
}

TEST(ConfigJsonTest, RefusesWhatTheEngineDoesNotCompute) {
  ExpectRefused(With("hidden_act", "gelu"), "hidden_act", "\"gelu\"");
  ExpectRefused(With("mlp_bias", true), "mlp_bias");
  ExpectRefused(With("attention_dropout", 0.1), "attention_dropout", "0.1");
  ExpectRefused(With("partial_rotary_factor", 0.5), "partial_rotary_factor", "every dimension");
  ExpectRefused(With("quantization_config", {{"quant_method", "awq"}}),
                "quantization_config.quant_method: \"awq\" weights");
  // MXFP4 is read for transposed experts.
  ExpectRefused(With("quantization_config", {{"quant_method", "mxfp4"}}),
                "give a directory of its BF16 or FP32 weights");
  ExpectRefused(With("quantization_config", "mxfp4"), "quantization_config: must be an object");
  ExpectRefused(With("auto_map", {{"AutoModel", "x.y"}}), "auto_map");
  ExpectRefused(With("is_encoder_decoder", true), "is_encoder_decoder");
  ExpectRefused(With("use_mrope", true), "use_mrope");
  ExpectRefused(With("add_cross_attention", true), "add_cross_attention");
  ExpectRefused(With("cross_attention_hidden_size", 64), "cross_attention_hidden_size");
  ExpectRefused(With("tie_encoder_decoder", true), "tie_encoder_decoder");
  ExpectRefused(With("pruned_heads", {{"0", {1}}}), "pruned_heads");
  ExpectRefused(With("per_layer_config", {{"0", {{"hidden_size", 64}}}}), "per_layer_config");
  EXPECT_TRUE(With("use_mrope", false).ok());
  EXPECT_TRUE(With("pruned_heads", json::object()).ok());
  ExpectRefused(With("architectures", {"LlamaForSequenceClassification"}), "architectures",
                "LlamaForSequenceClassification");
  EXPECT_TRUE(With("attention_dropout", 0).ok());
  EXPECT_TRUE(With("partial_rotary_factor", 1.0).ok());
  EXPECT_TRUE(With("hidden_act", "swish").ok());
  EXPECT_TRUE(With("quantization_config", nullptr).ok());
}

TEST(ConfigJsonTest, ReadsWindows) {
  ExpectRefused(With("sliding_window", 4096), "sliding_window");
  json qwen = json::parse(kQwen25);
  const auto windows = [&] {
    const auto model = Parse(qwen);
    EXPECT_TRUE(model.ok()) << model.status();
    std::vector<int64_t> windows;
    for (const LayerDescription& layer : model->layers) windows.push_back(layer.attention.window);
    return windows;
  };
  std::vector<int64_t> expected(28, 0);
  EXPECT_EQ(windows(), expected);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(windows(), expected) << "from layer 28 of 28 on";
  qwen["max_window_layers"] = 20;
  qwen["sliding_window"] = 512;
  std::fill(expected.begin() + 20, expected.end(), 512);
  EXPECT_EQ(windows(), expected);
  // The list of layers decides if there is one.
  qwen["layer_types"] = json::array();
  for (int i = 0; i < 28; ++i) qwen["layer_types"].push_back("full_attention");
  expected.assign(28, 0);
  EXPECT_EQ(windows(), expected);
  qwen["layer_types"][27] = "sliding_attention";
  expected[27] = 512;
  EXPECT_EQ(windows(), expected);
  qwen["use_sliding_window"] = false;
  ExpectRefused(Parse(qwen), "layer_types", "use_sliding_window");
  qwen["layer_types"][27] = "linear_attention";
  ExpectRefused(Parse(qwen), "layer_types", "linear_attention");
  qwen["layer_types"] = {"full_attention"};
  ExpectRefused(Parse(qwen), "layer_types", "28");
  ExpectRefused(With("sliding_window", 0, kQwen25), "sliding_window", "the number 0");
  ExpectRefused(With("sliding_window", -4, kQwen25), "sliding_window", "the number -4");
}

TEST(ConfigJsonTest, ReadsThePaddingIdAsTorchDoes) {
  EXPECT_EQ(With("pad_token_id", 7)->padding_id, 7);
  EXPECT_EQ(With("pad_token_id", nullptr)->padding_id, -1);
  EXPECT_EQ(With("pad_token_id", -1)->padding_id, 128255) << "counted from the end";
  EXPECT_EQ(With("pad_token_id", 128255)->padding_id, 128255);
  EXPECT_EQ(With("pad_token_id", -128256)->padding_id, 0);
  ExpectRefused(With("pad_token_id", 128256), "pad_token_id", "128256");
  ExpectRefused(With("pad_token_id", -128257), "pad_token_id", "-128257");
}

TEST(ConfigJsonTest, RefusesOtherRopeTypes) {
  for (const char* type : {"mrope", "proportional"}) {
    ExpectRefused(With("rope_scaling", {{"type", type}, {"factor", 2.0}}), "rope_type", type);
  }
  ExpectRefused(With("rope_scaling", {{"type", "linear"}}), "rope_scaling.factor", "missing");
  ExpectRefused(With("rope_scaling", {{"type", "linear"}, {"factor", 0.5}}), "rope_scaling.factor",
                "0.5");
  ExpectRefused(With("rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}),
                "rope_scaling.low_freq_factor", "missing");
  ExpectRefused(With("rope_scaling", {{"rope_type", "llama3"},
                                      {"factor", 8.0},
                                      {"low_freq_factor", 4.0},
                                      {"high_freq_factor", 4.0}}),
                "rope_scaling.high_freq_factor");
  ExpectRefused(With("rope_scaling", "linear"), "rope_scaling", "must be an object");
  ExpectRefused(With("rope_theta", "10000"), "rope_theta", "the string \"10000\"");
  ExpectRefused(With("rope_theta", 0), "rope_theta", "the number 0");
}

TEST(ConfigJsonTest, RefusesMissingKeysWrongTypesAndRanges) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads"}) {
    json config = json::parse(kLlama31);
    config.erase(key);
    ExpectRefused(Parse(config), key, "missing");
    ExpectRefused(With(key, "12"), key, "must be an integer");
    ExpectRefused(With(key, 12.0), key, "must be an integer");
    ExpectRefused(With(key, 0), key, "the number 0");
    ExpectRefused(With(key, -1), key, "the number -1");
    ExpectRefused(With(key, 18446744073709551615u), key, "18446744073709551615");
    ExpectRefused(With(key, true), key, "true");
  }
  ExpectRefused(With("tie_word_embeddings", 1), "tie_word_embeddings", "true or false");
  ExpectRefused(With("rms_norm_eps", "tiny"), "rms_norm_eps", "must be a number");
  ExpectRefused(With("num_key_value_heads", 5), "num_key_value_heads", "divide");
  ExpectRefused(With("num_attention_heads", 24), "hidden_size", "no multiple");
  ExpectRefused(With("head_dim", 7), "head_dim", "even");
  ExpectRefused(With("eos_token_id", "</s>"), "eos_token_id");
  ExpectRefused(With("eos_token_id", {1, "x"}), "eos_token_id");
  ExpectRefused(With("eos_token_id", 18446744073709551615u), "eos_token_id");
  ExpectRefused(With("model_type", 3), "model_type", "must be a string");
}

TEST(ConfigJsonTest, BoundsAreAllowedValues) {
  EXPECT_EQ(With("rms_norm_eps", 0)->norm_epsilon, 0.0);
  EXPECT_EQ(With("rms_norm_eps", 1)->norm_epsilon, 1.0);
  ExpectRefused(With("rms_norm_eps", 1.5), "rms_norm_eps", "the number 1.5");
  ExpectRefused(With("rms_norm_eps", -0.5), "rms_norm_eps", "the number -0.5");
  EXPECT_EQ(With("num_hidden_layers", 4096)->layer_count(), 4096);
  ExpectRefused(With("num_hidden_layers", 4097), "num_hidden_layers", "the number 4097");
  // The size of a head that is not given.
  json config = json::parse(kLlama31);
  config["num_attention_heads"] = config["num_key_value_heads"] = 4;
  EXPECT_EQ(Parse(config)->layers[0].attention.head_dim, 1024);
  config["num_attention_heads"] = config["num_key_value_heads"] = 2;
  ExpectRefused(Parse(config), "head_dim", "2048 (hidden_size / num_attention_heads");
  for (const json& ids : {json(-1), json(2147483647), json::array({-1, 2147483647})}) {
    EXPECT_TRUE(With("eos_token_id", ids).ok()) << ids;
  }
  for (const json& ids : {json(-2), json(2147483648), json::array({5, -2})}) {
    ExpectRefused(With("eos_token_id", ids), "eos_token_id", "must be a token id");
  }
  ExpectRefused(With("bos_token_id", 2147483648), "bos_token_id", "2147483648");
}

TEST(ConfigJsonTest, TheFirstErrorIsNamed) {
  json config = json::parse(kLlama31);
  config["hidden_size"] = 0;
  config["use_mrope"] = true;
  config["mystery"] = 1;
  ExpectRefused(Parse(config), "hidden_size");
}

// Keys of published configurations that may say no more than what the class does anyway.
TEST(ConfigJsonTest, LlamasSwitchesAreOff) {
  for (const char* key : {"mlp_bias", "rope_interleaved", "parallel_attn", "use_sliding_window"}) {
    EXPECT_TRUE(With(key, false).ok()) << key;
    ExpectRefused(With(key, true), key, "is not supported");
  }
  EXPECT_TRUE(With("activation", "swiglu").ok());
  ExpectRefused(With("activation", "geglu"), "activation", "is not supported");
  json types = json::array();
  for (int i = 0; i < 32; ++i) types.push_back("full_attention");
  EXPECT_TRUE(With("layer_types", types).ok());
  types[31] = "sliding_attention";
  ExpectRefused(With("layer_types", types), "layer_types", "no windows");
  ExpectRefused(With("architectures", "LlamaForCausalLM"), "architectures", "a list of names");
  ExpectRefused(With("architectures", json::array({3})), "architectures", "is not supported");
}

TEST(ConfigJsonTest, RefusesWhatIsNoObject) {
  EXPECT_FALSE(ParseModelDescription("", "x").ok());
  EXPECT_FALSE(ParseModelDescription("[]", "x").ok());
  EXPECT_FALSE(ParseModelDescription("{\"model_type\": \"llama\",}", "x").ok());
  const std::string deep = "{\"a\":" + std::string(100000, '[');
  EXPECT_FALSE(ParseModelDescription(deep, "x").ok());
}

TEST(ConfigJsonTest, RewritesTheDTypeAndKeepsTheRest) {
  const auto rewritten = RewriteConfigDType(
      R"({"z": 1, "torch_dtype": "float16", "a": [1.5, 1e-06]})", DType::kBF16, "x");
  ASSERT_TRUE(rewritten.ok()) << rewritten.status();
  EXPECT_EQ(nlohmann::ordered_json::parse(*rewritten).dump(),
            R"({"z":1,"torch_dtype":"bfloat16","a":[1.5,1e-06]})");
  // The key of transformers 5 stays the only one.
  const auto five = RewriteConfigDType(R"({"dtype": "bfloat16"})", DType::kF32, "x");
  EXPECT_EQ(json::parse(*five).dump(), R"({"dtype":"float32"})");
  // What is written is not quantised.
  const auto quantised =
      RewriteConfigDType(R"({"a": 1, "quantization_config": {"b": 2}, "c": 3})", DType::kBF16, "x");
  EXPECT_EQ(nlohmann::ordered_json::parse(*quantised).dump(),
            R"({"a":1,"c":3,"torch_dtype":"bfloat16"})");
  // What is written has no layers that predict further tokens.
  const auto glm = RewriteConfigDType(
      R"({"model_type": "glm4_moe", "dtype": "x", "num_nextn_predict_layers": 1})", DType::kF32,
      "x");
  EXPECT_EQ(nlohmann::ordered_json::parse(*glm).dump(),
            R"({"model_type":"glm4_moe","dtype":"float32","num_nextn_predict_layers":0})");
  // Both keys, and those of the text model in a wrapper.
  const auto both = RewriteConfigDType(
      R"({"dtype": "x", "text_config": {"torch_dtype": "y", "dtype": "z", "a": 1},)"
      R"( "torch_dtype": "y"})",
      DType::kBF16, "x");
  EXPECT_EQ(nlohmann::ordered_json::parse(*both).dump(),
            R"({"dtype":"bfloat16","text_config":{"torch_dtype":"bfloat16","dtype":"bfloat16",)"
            R"("a":1},"torch_dtype":"bfloat16"})");
  EXPECT_EQ(RewriteConfigDType("[]", DType::kF32, "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto neither = RewriteConfigDType("{}", DType::kF32, "x");
  EXPECT_EQ(json::parse(*neither).dump(), R"({"torch_dtype":"float32"})");
}

// Files of the text model alone have no layers that predict further tokens; those of a wrapper have
// what they had.
TEST(ConfigJsonTest, LayersThatAreNotWrittenAreNotCounted) {
  const auto rewritten = RewriteConfigDType(
      R"({"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1})", DType::kBF16, "x");
  ASSERT_TRUE(rewritten.ok()) << rewritten.status();
  EXPECT_THAT(*rewritten, HasSubstr("\"mtp_num_hidden_layers\": 0"));
  const auto absent = RewriteConfigDType(R"({"model_type": "qwen3_5_text"})", DType::kBF16, "x");
  EXPECT_THAT(*absent, ::testing::Not(HasSubstr("mtp_num_hidden_layers")));
  const auto wrapper = RewriteConfigDType(
      R"({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", )"
      R"("mtp_num_hidden_layers": 1}})",
      DType::kBF16, "x");
  EXPECT_THAT(*wrapper, HasSubstr("\"mtp_num_hidden_layers\": 1"));
}

}  // namespace
}  // namespace megatrain

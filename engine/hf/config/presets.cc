#include "engine/hf/config/presets.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/hf/config/model_family.h"
#include "engine/tokenizer/bytes_tokenizer.h"

namespace megatrain {
namespace {

struct Shape {
  const char* name;
  const char* family;  // model_type
  int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary, positions;
  bool tied;
  double rope_theta, norm_epsilon;  // a theta of 0 is left out
  int64_t bos, eos;
  const char* more = "{}";  // keys of the family's own, put over the others
};

constexpr char kLlama[] = "llama";
constexpr char kQwen2[] = "qwen2";
constexpr char kQwen3[] = "qwen3";

// Shapes as published; those of llama-tiny to llama-1.3b are this project's.
constexpr Shape kShapes[] = {
    // clang-format off
    // name           family  hidden lyr  q  kv  dim  mlp    vocab   positions tied   theta    epsilon bos     eos
    {"llama-tiny",    kLlama,  128,   4,  4,  4,  32,   448,    259,   2048, false,   10000.0, 1e-5,    256,    257},
    {"llama-10m",     kLlama,  320,   8,  5,  5,  64,   864,    259,   2048, false,   10000.0, 1e-5,    256,    257},
    {"llama-124m",    kLlama,  768,  12, 12, 12,  64,  2048,  32000,   2048,  true,   10000.0, 1e-5,      1,      2},
    {"llama-1.3b",    kLlama, 2048,  24, 16, 16, 128,  5504,  32000,   2048, false,   10000.0, 1e-5,      1,      2},
    {"qwen2.5-0.5b",  kQwen2,  896,  24, 14,  2,  64,  4864, 151936,  32768,  true, 1000000.0, 1e-6, 151643, 151643},
    {"qwen2.5-1.5b",  kQwen2, 1536,  28, 12,  2, 128,  8960, 151936, 131072,  true, 1000000.0, 1e-6, 151643, 151643},
    {"qwen2.5-3b",    kQwen2, 2048,  36, 16,  2, 128, 11008, 151936,  32768,  true, 1000000.0, 1e-6, 151643, 151643},
    {"qwen2.5-7b",    kQwen2, 3584,  28, 28,  4, 128, 18944, 152064, 131072, false, 1000000.0, 1e-6, 151643, 151643},
    {"qwen2.5-14b",   kQwen2, 5120,  48, 40,  8, 128, 13824, 152064, 131072, false, 1000000.0, 1e-5, 151643, 151643},
    {"qwen2.5-32b",   kQwen2, 5120,  64, 40,  8, 128, 27648, 152064, 131072, false, 1000000.0, 1e-5, 151643, 151643},
    {"qwen2.5-72b",   kQwen2, 8192,  80, 64,  8, 128, 29568, 152064, 131072, false, 1000000.0, 1e-5, 151643, 151643},
    {"qwen3-0.6b",    kQwen3, 1024,  28, 16,  8, 128,  3072, 151936,  40960,  true, 1000000.0, 1e-6, 151643, 151645},
    {"qwen3-8b",      kQwen3, 4096,  36, 32,  8, 128, 12288, 151936,  40960, false, 1000000.0, 1e-6, 151643, 151645},
    {"qwen3-32b",     kQwen3, 5120,  64, 64,  8, 128, 25600, 151936,  40960, false, 1000000.0, 1e-6, 151643, 151645},
    {"llama3-8b",     kLlama, 4096,  32, 32,  8, 128, 14336, 128256,   8192, false,  500000.0, 1e-5, 128000, 128001},
    {"llama3-70b",    kLlama, 8192,  80, 64,  8, 128, 28672, 128256,   8192, false,  500000.0, 1e-5, 128000, 128001},
    {"mistral-small-24b", "mistral", 5120, 40, 32, 8, 128, 32768, 131072, 32768, false, 100000000.0, 1e-5, 1, 2,
     R"({"sliding_window": null})"},
    {"gemma2-9b", "gemma2", 3584, 42, 16, 8, 256, 14336, 256000, 8192, true, 10000.0, 1e-6, 2, 1,
     R"({"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
         "query_pre_attn_scalar": 256, "sliding_window": 4096,
         "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "pad_token_id": 0})"},
    {"gemma3-27b", "gemma3_text", 5376, 62, 32, 16, 128, 21504, 262208, 131072, true, 1000000.0, 1e-6, 2, 1,
     R"({"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
         "query_pre_attn_scalar": 168, "sliding_window": 1024,
         "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0, "pad_token_id": 0,
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}})"},
    {"gemma4-e2b", "gemma4_text", 1536, 35, 8, 1, 256, 6144, 262144, 131072, true, 0.0, 1e-6, 2, 1,
     R"({"hidden_activation": "gelu_pytorch_tanh", "attention_k_eq_v": false, "global_head_dim": 512,
         "num_global_key_value_heads": null, "sliding_window": 512, "final_logit_softcapping": 30.0,
         "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "pad_token_id": 0,
         "num_kv_shared_layers": 20, "use_double_wide_mlp": true, "layer_types": [
          "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]})"},
    {"gemma4-e4b", "gemma4_text", 2560, 42, 8, 2, 256, 10240, 262144, 131072, true, 0.0, 1e-6, 2, 1,
     R"({"hidden_activation": "gelu_pytorch_tanh", "attention_k_eq_v": false, "global_head_dim": 512,
         "num_global_key_value_heads": null, "sliding_window": 512, "final_logit_softcapping": 30.0,
         "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "pad_token_id": 0,
         "num_kv_shared_layers": 18, "use_double_wide_mlp": false})"},
    {"gemma4-31b", "gemma4_text", 5376, 60, 32, 16, 256, 21504, 262144, 262144, true, 0.0, 1e-6, 2, 1,
     R"({"hidden_activation": "gelu_pytorch_tanh", "attention_k_eq_v": true, "global_head_dim": 512,
         "num_global_key_value_heads": 4, "sliding_window": 1024, "final_logit_softcapping": 30.0,
         "hidden_size_per_layer_input": 0, "pad_token_id": 0})"},
    {"gemma4-26b-a4b", "gemma4_text", 2816, 30, 16, 8, 256, 2112, 262144, 262144, true, 0.0, 1e-6, 2, 1,
     R"({"hidden_activation": "gelu_pytorch_tanh", "attention_k_eq_v": true, "global_head_dim": 512,
         "num_global_key_value_heads": 2, "sliding_window": 1024, "final_logit_softcapping": 30.0,
         "hidden_size_per_layer_input": 0, "pad_token_id": 0, "enable_moe_block": true,
         "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704})"},
    {"phi4-14b", "phi3", 5120, 40, 40, 10, 128, 17920, 100352, 16384, false, 250000.0, 1e-5, 100257, 100265,
     R"({"original_max_position_embeddings": 16384, "sliding_window": null, "pad_token_id": 100349})"},
    {"granite3.3-8b", "granite", 4096, 40, 32, 8, 128, 12800, 49159, 131072, true, 10000000.0, 1e-5, 0, 0,
     R"({"embedding_multiplier": 12.0, "logits_scaling": 16.0, "residual_multiplier": 0.22,
         "attention_multiplier": 0.0078125, "pad_token_id": 0})"},
    {"smollm3-3b", "smollm3", 2048, 36, 16, 4, 128, 11008, 128256, 65536, true, 5000000.0, 1e-6, 128000, 128001,
     R"({"no_rope_layer_interval": 4, "use_sliding_window": false, "pad_token_id": 128004})"},
    {"olmo3-7b", "olmo3", 4096, 32, 32, 32, 128, 11008, 100278, 65536, false, 500000.0, 1e-6, 100257, 100257,
     R"({"sliding_window": 4096, "pad_token_id": 100277,
         "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192,
                          "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0}})"},
    {"glm4-9b", "glm4", 4096, 40, 32, 2, 128, 13696, 151552, 32768, false, 10000.0, 1e-5, 151331, 151329,
     R"({"attention_bias": true, "partial_rotary_factor": 0.5, "pad_token_id": 151329})"},
    {"mixtral-8x7b", "mixtral", 4096, 32, 32, 8, 128, 14336, 32000, 32768, false, 1000000.0, 1e-5, 1, 2,
     R"({"num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02,
         "sliding_window": null})"},
    {"qwen3-30b-a3b", "qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, 40960, false, 1000000.0, 1e-6, 151643, 151645,
     R"({"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
         "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.001})"},
    {"qwen3-235b-a22b", "qwen3_moe", 4096, 94, 64, 4, 128, 12288, 151936, 40960, false, 1000000.0, 1e-6, 151643, 151645,
     R"({"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "norm_topk_prob": true,
         "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.001})"},
    {"gpt-oss-20b", "gpt_oss", 2880, 24, 64, 8, 64, 2880, 201088, 131072, false, 150000.0, 1e-5, 199998, 200002,
     R"({"num_local_experts": 32, "num_experts_per_tok": 4, "router_aux_loss_coef": 0.9, "attention_bias": true,
         "sliding_window": 128, "swiglu_limit": 7.0, "pad_token_id": 199999,
         "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
                          "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false}})"},
    {"gpt-oss-120b", "gpt_oss", 2880, 36, 64, 8, 64, 2880, 201088, 131072, false, 150000.0, 1e-5, 199998, 200002,
     R"({"num_local_experts": 128, "num_experts_per_tok": 4, "router_aux_loss_coef": 0.9, "attention_bias": true,
         "sliding_window": 128, "swiglu_limit": 7.0, "pad_token_id": 199999,
         "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
                          "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false}})"},
    {"glm-4.5-air", "glm4_moe", 4096, 46, 96, 8, 128, 10944, 151552, 131072, false, 1000000.0, 1e-5, 151331, 151329,
     R"({"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
         "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
         "routed_scaling_factor": 1.0, "use_qk_norm": false, "attention_bias": true,
         "partial_rotary_factor": 0.5, "pad_token_id": 151329})"},
    {"glm-4.5", "glm4_moe", 5120, 92, 96, 8, 128, 12288, 151552, 131072, false, 1000000.0, 1e-5, 151331, 151329,
     R"({"n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1536,
         "first_k_dense_replace": 3, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
         "routed_scaling_factor": 2.5, "use_qk_norm": true, "attention_bias": true,
         "partial_rotary_factor": 0.5, "pad_token_id": 151329})"},
    {"deepseek-v3", "deepseek_v3", 7168, 61, 128, 128, 64, 18432, 129280, 163840, false, 10000.0, 1e-6, 0, 1,
     R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
         "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "norm_topk_prob": true,
         "routed_scaling_factor": 2.5, "rope_interleave": true,
         "rope_scaling": {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
                          "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}})"},
    {"qwen3-next-80b-a3b", "qwen3_next", 2048, 48, 16, 2, 256, 5120, 151936, 262144, false, 10000000.0, 1e-6, 151643, 151645,
     R"({"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "norm_topk_prob": true, "decoder_sparse_step": 1,
         "mlp_only_layers": [], "router_aux_loss_coef": 0.001, "partial_rotary_factor": 0.25,
         "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4})"},
    {"qwen3.5-9b", "qwen3_5_text", 4096, 32, 16, 4, 256, 12288, 248320, 262144, false, 10000000.0, 1e-6, 248044, 248044,
     R"({"partial_rotary_factor": 0.25,
         "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4})"},
    {"qwen3.5-35b-a3b", "qwen3_5_moe_text", 2048, 40, 16, 2, 256, 512, 248320, 262144, false, 10000000.0, 1e-6, 248044, 248044,
     R"({"num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "router_aux_loss_coef": 0.001, "partial_rotary_factor": 0.25,
         "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4})"},
    // clang-format on
};

std::string ConfigJson(const Shape& shape, DType dtype) {
  nlohmann::ordered_json config;
  const bool qwen2 = shape.family == std::string_view(kQwen2);
  config["architectures"] = {FindModelFamily(shape.family)->architecture};
  config["model_type"] = shape.family;
  config["vocab_size"] = shape.vocabulary;
  config["hidden_size"] = shape.hidden;
  config["intermediate_size"] = shape.intermediate;
  config["num_hidden_layers"] = shape.layers;
  config["num_attention_heads"] = shape.heads;
  config["num_key_value_heads"] = shape.kv_heads;
  // Qwen2 has no such key: it is hidden_size / num_attention_heads there.
  if (!qwen2) config["head_dim"] = shape.head_dim;
  config["max_position_embeddings"] = shape.positions;
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = shape.norm_epsilon;
  if (shape.rope_theta > 0) config["rope_theta"] = shape.rope_theta;
  config["initializer_range"] = 0.02;
  config["attention_dropout"] = 0.0;
  if (!qwen2) config["attention_bias"] = false;
  config["tie_word_embeddings"] = shape.tied;
  config["use_cache"] = true;
  config["bos_token_id"] = shape.bos;
  config["eos_token_id"] = shape.eos;
  config["torch_dtype"] = dtype == DType::kBF16 ? "bfloat16" : "float32";
  config.update(nlohmann::ordered_json::parse(shape.more));
  return config.dump(2) + "\n";
}

}  // namespace

std::vector<Preset> Presets() {
  std::vector<Preset> presets;
  for (const Shape& shape : kShapes) {
    Preset preset;
    preset.name = shape.name;
    preset.bytes_tokenizer = shape.vocabulary == kBytesVocabulary;
    // Small enough that the master's last bits cost nothing on disk.
    preset.dtype = shape.hidden < 1024 && shape.family == std::string_view(kLlama) ? DType::kF32
                                                                                   : DType::kBF16;
    preset.config_json = ConfigJson(shape, preset.dtype);
    presets.push_back(std::move(preset));
  }
  return presets;
}

}  // namespace megatrain

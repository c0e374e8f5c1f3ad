// The configuration of a decoder: the content of a Hugging Face config.json in the engine's terms.
#ifndef MEGATRAIN_ENGINE_MODEL_MODEL_CONFIG_H_
#define MEGATRAIN_ENGINE_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>

namespace megatrain {

enum class ModelFamily { kLlama, kQwen2, kQwen3 };

enum class RopeType { kDefault, kLinear, kLlama3, kYarn };

// The settings of rotary embeddings, as in transformers' modeling_rope_utils.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                 // linear, llama3, yarn
  double low_frequency_factor = 1.0;   // llama3
  double high_frequency_factor = 4.0;  // llama3
  int64_t original_positions = 0;      // llama3, yarn: original_max_position_embeddings
  double beta_fast = 32.0;             // yarn
  double beta_slow = 1.0;              // yarn
  double attention_factor = 0.0;       // yarn; multiplies cosine and sine; 0 = 0.1 ln(factor) + 1
  bool truncate = true;                // yarn: round the corrected range to whole dimensions
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  int64_t vocabulary = 0;        // vocab_size
  int64_t hidden = 0;            // hidden_size
  int64_t layers = 0;            // num_hidden_layers
  int64_t heads = 0;             // num_attention_heads
  int64_t kv_heads = 0;          // num_key_value_heads
  int64_t head_dim = 0;          // head_dim, else hidden / heads
  int64_t intermediate = 0;      // intermediate_size
  int64_t max_positions = 0;     // max_position_embeddings
  double norm_epsilon = 1e-6;    // rms_norm_eps
  bool tied_embeddings = false;  // tie_word_embeddings
  bool qkv_bias = false;         // Qwen2
  bool qk_norm = false;          // Qwen3
  double initializer_range = 0.02;
  RopeConfig rope;
};

// Returns config.json's model_type: "llama", "qwen2" or "qwen3".
std::string ModelFamilyName(ModelFamily family);

// Returns the number of parameters of the whole model; a tied matrix counts once.
int64_t ParameterCount(const ModelConfig& config);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_MODEL_CONFIG_H_

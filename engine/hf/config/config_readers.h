// Reads the settings of config.json that families have in common. Every function reads with
// transformers' meaning, records errors in the fields' status, and then returns something harmless.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_CONFIG_READERS_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_CONFIG_READERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/hf/config/json_fields.h"
#include "engine/model/model_description.h"

namespace megatrain {

// The largest values that are accepted. They keep every product of sizes, 12 bytes a parameter
// included, below 2^63:
//   a layer < 6 matrices of its first half * 2^20 * 2^22 (those of latents too) + 3 MLP matrices *
//   2^20 * 2^24
//             + 3 matrices of a shared expert * 2^20 * 2^24 < 2^47 parameters,
//   2^12 layers of them, 16 bytes each: < 2^63.
// The experts of a layer together count as one MLP: their number times their intermediate size has
// the bound of an intermediate size. Models that people train use 2^20 of its 2^24.
inline constexpr int64_t kVocabularyMax = int64_t{1} << 31;
inline constexpr int64_t kHiddenMax = int64_t{1} << 20;
inline constexpr int64_t kIntermediateMax = int64_t{1} << 24;
inline constexpr int64_t kLayersMax = int64_t{1} << 12;
inline constexpr int64_t kHeadsMax = int64_t{1} << 12;
inline constexpr int64_t kHeadDimMax = int64_t{1} << 10;
inline constexpr int64_t kPositionsMax = int64_t{1} << 30;
inline constexpr int64_t kExpertsMax = int64_t{1} << 12;  // of a layer
// The limit is for the experts of one token. A micro-batch's rows of all experts then have at most
// 2^7 times its elements.
inline constexpr int64_t kChosenExpertsMax = int64_t{1} << 7;
// The limit is for the experts of all layers together: each has three tensors of its own, and may
// have a tile.
inline constexpr int64_t kAllExpertsMax = int64_t{1} << 17;

// The values of transformers' configuration class of a family for keys that are absent.
struct ModelDefaults {
  // 0: the key must be there.
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  int64_t max_positions = 2048;
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  int64_t padding_id = -1;  // -1: none
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
};

// Reads the shape, the norms' epsilon, the activation, tie_word_embeddings and pad_token_id:
// Llama's description but for RoPE.
ModelDescription ReadUniformModel(JsonFields& fields, const ModelDefaults& defaults);

struct RopeDefaults {
  double theta = 10000.0;
  // partial_rotary_factor where it is absent. 0: the family rotates whole heads, and another value
  // than 1 is refused.
  double rotary_fraction = 0.0;
  int64_t original_positions = 0;  // original_max_position_embeddings; 0: as max_positions
  // The type and settings where config.json has no RoPE object.
  RopeConfig absent = {};
  bool position_scale = false;  // llama_4_scaling_beta is read
  // The key of theta beside the object; "" if there is none.
  std::string theta_key = "rope_theta";
  // The settings for positions of images may be there. A text has the same position in all of their
  // parts, so that nothing changes.
  bool image_positions = false;
  // For families that rotate kinds of layers differently: the kind, which has an object of its own
  // in rope_parameters. An older rope_scaling is for full_attention alone.
  std::string layer_type = "";
  int64_t head_dim = 0;       // of these layers; 0: that of the first
  bool proportional = false;  // the type "proportional" is allowed
};
// Returns the pairs of a head that turn where `fraction` of it does.
int64_t TurningPairs(double fraction, int64_t head_dim);
// Reads RoPE's settings: the object rope_scaling or rope_parameters, with what stands beside it.
RopeConfig ReadRope(JsonFields& fields, const ModelDescription& model,
                    const RopeDefaults& defaults = {});

// Reads layer_types, whose names must be full_attention and `type`, into a value for each layer:
// true if it is of `type`. Where the key is absent, `is_of_type` says it.
std::vector<bool> ReadLayersOfType(JsonFields& fields, int64_t layers, const char* type,
                                   absl::FunctionRef<bool(int64_t layer)> is_of_type);

// The same with sliding_attention: true for layers that have a window.
std::vector<bool> ReadSlidingLayers(JsonFields& fields, int64_t layers,
                                    absl::FunctionRef<bool(int64_t layer)> slides);

// Reads sliding_window; null is 0, and `absent` is for a missing key.
int64_t ReadWindow(JsonFields& fields, int64_t absent);

// Gives the layers of `slides` the window and the index of their rope. Refuses layers that slide
// where there is no window.
void SetSlidingLayers(JsonFields& fields, const std::vector<bool>& slides, int64_t window, int rope,
                      ModelDescription& model);

// The keys of a family's experts, and the values of transformers' class where they are absent.
struct ExpertsDefaults {
  // 0: the key must be there.
  int64_t count = 0;
  int64_t chosen = 0;
  int64_t intermediate = 0;
  const char* count_key = "num_local_experts";
  const char* count_alias = "num_experts";  // another name that transformers takes; null: none
  const char* intermediate_key = "moe_intermediate_size";
  const char* chosen_key = "num_experts_per_tok";
  bool auxiliary_loss = true;  // router_aux_loss_coef is read
};
// Reads the number of experts and of those that a token goes to, their intermediate size and the
// auxiliary loss, and sets experts_per_tile. The activation is that of the model's other units.
// As in transformers there is an auxiliary loss only where output_router_logits is true.
ExpertsDescription ReadExperts(JsonFields& fields, const ModelDescription& model,
                               const ExpertsDefaults& defaults);

// Reads decoder_sparse_step and mlp_only_layers into a value for each layer: true if it has
// experts.
std::vector<bool> ReadSparseLayers(JsonFields& fields, int64_t layers);

// Gives every layer the experts for which `sparse` is true, in the place of the dense unit or, if
// `join` is given, beside it; the others keep theirs alone.
// Refuses more experts than kAllExpertsMax, naming `key`.
void SetExperts(JsonFields& fields, const char* key, const ExpertsDescription& experts,
                absl::FunctionRef<bool(int64_t layer)> sparse, ModelDescription& model,
                const JoinDescription* join = nullptr);

// The values of transformers' class of a family with SetSigmoidExperts.
struct SigmoidExpertsDefaults {
  int64_t count = 0;
  int64_t chosen = 0;
  int64_t intermediate = 0;
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  double scale = 1.0;
  int64_t dense_layers = 1;
};
// Gives every layer from first_k_dense_replace on the experts of DeepSeek-V3 and GLM 4.5: in
// groups, beside a shared one, with routers that take sigmoids, and a correction of their choice
// that is not trained by gradients.
void SetSigmoidExperts(JsonFields& fields, const SigmoidExpertsDefaults& defaults,
                       ModelDescription& model);

// Qwen's windows: use_sliding_window, and layer_types or the layers from max_window_layers on.
void ReadQwenWindows(JsonFields& fields, ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_CONFIG_READERS_H_

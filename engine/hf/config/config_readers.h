// Reads the settings of config.json that families have in common. Every function gives a key the
// meaning that transformers gives it. Functions record errors in fields.status(). After an error
// their results are wrong, but safe to work on.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_CONFIG_READERS_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_CONFIG_READERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/hf/config/json_fields.h"
#include "engine/model/model_description.h"

namespace megatrain {

// The largest values that are accepted. They keep every product of sizes, 16 bytes a parameter
// included, below 2^63:
//   a layer < 6 matrices of its attention * 2^20 * 2^22 (those of latents too)
//             + 3 MLP matrices * 2^20 * 2^24
//             + 3 matrices of a shared expert * 2^20 * 2^24 < 2^47 parameters,
//   2^12 layers of them, 16 bytes each: < 2^63.
// The experts of a layer together count as one MLP: their number times their intermediate size is
// at most kIntermediateMax. Published models reach 2^20.
inline constexpr int64_t kVocabularyMax = int64_t{1} << 31;
inline constexpr int64_t kHiddenMax = int64_t{1} << 20;
inline constexpr int64_t kIntermediateMax = int64_t{1} << 24;
inline constexpr int64_t kLayersMax = int64_t{1} << 12;
inline constexpr int64_t kHeadsMax = int64_t{1} << 12;  // query heads, or key-value heads
inline constexpr int64_t kHeadDimMax = int64_t{1} << 10;
inline constexpr int64_t kPositionsMax = int64_t{1} << 30;
inline constexpr int64_t kExpertsMax = int64_t{1} << 12;  // of a layer
// The most experts that a token goes to. The rows that all experts take together are then at most
// 2^7 times those of the micro-batch.
inline constexpr int64_t kChosenExpertsMax = int64_t{1} << 7;
// The most experts of all layers together. Each has three tensors of its own, and may have a tile.
inline constexpr int64_t kAllExpertsMax = int64_t{1} << 17;

// The values of transformers' configuration class of a family for keys that are absent.
struct ModelDefaults {
  // 0 in one of these five: the key must be there.
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

// Returns a model whose layers are all alike, as Llama's are. Reads the shape, the norms' epsilon,
// the activation, tie_word_embeddings and pad_token_id, but not RoPE's settings: model.ropes has
// the default ones, which the caller replaces (ReadRope).
ModelDescription ReadUniformModel(JsonFields& fields, const ModelDefaults& defaults);

// The values that ReadRope takes for absent keys, and the keys that the family may have.
struct RopeDefaults {
  double theta = 10000.0;
  // The value of partial_rotary_factor if it is absent. 0: the family rotates whole heads, and a
  // value other than 1 is refused, except in an object of the type "proportional".
  double rotary_fraction = 0.0;
  int64_t original_positions = 0;  // see ReadRope; 0: none
  // The type and settings where config.json has no RoPE object.
  RopeConfig absent = {};
  bool position_scale = false;  // true: llama_4_scaling_beta is read
  // The key of theta beside the object; "" if there is none.
  std::string theta_key = "rope_theta";
  // True if mrope_section and mrope_interleaved may be there. They divide positions into time,
  // height and width. They are passed over, because these three are equal in text.
  bool image_positions = false;
  // The kind of layers to read, full_attention or sliding_attention, for families that rotate the
  // two differently. rope_parameters has an object for each kind. The older rope_scaling is for
  // full_attention alone. "" for other families.
  std::string layer_type = "";
  int64_t head_dim = 0;       // of these layers; 0: that of model.layers[0]
  bool proportional = false;  // the type "proportional" is allowed
};
// Returns the number of pairs of elements that are rotated if `fraction` of a head is: fraction *
// head_dim / 2, rounded down.
int64_t TurningPairs(double fraction, int64_t head_dim);
// Reads RoPE's settings from the object rope_scaling or rope_parameters, and from the keys beside
// it. Without such an object returns defaults.absent, but with the rotated part of a head and, of
// the keys beside it, theta if its type is the default, original_max_position_embeddings otherwise.
// With an object, original_positions is the first of these that is given:
// - original_max_position_embeddings beside the object, if `defaults` has no layer_type;
// - defaults.original_positions;
// - original_max_position_embeddings in the object;
// - model.max_positions.
// REQUIRES: `model` has a layer.
RopeConfig ReadRope(JsonFields& fields, const ModelDescription& model,
                    const RopeDefaults& defaults = {});

// Reads layer_types, a list of `layers` names, which must be full_attention or `type`. Returns a
// value for each layer: true if it is of `type`. If the key is absent, `is_of_type` decides.
std::vector<bool> ReadLayersOfType(JsonFields& fields, int64_t layers, const char* type,
                                   absl::FunctionRef<bool(int64_t layer)> is_of_type);

// Does as ReadLayersOfType with the type sliding_attention: true for layers that have a window.
std::vector<bool> ReadSlidingLayers(JsonFields& fields, int64_t layers,
                                    absl::FunctionRef<bool(int64_t layer)> slides);

// Returns sliding_window, in tokens; 0 if it is null, and `absent` if the key is missing.
int64_t ReadWindow(JsonFields& fields, int64_t absent);

// Gives the layers for which `slides` is true the window of `window` tokens and the RoPE
// model.ropes[rope]. Refuses such layers if `window` is 0. REQUIRES: `slides` has a value for each
// layer.
void SetSlidingLayers(JsonFields& fields, const std::vector<bool>& slides, int64_t window, int rope,
                      ModelDescription& model);

// The keys of a family's experts, and the values of transformers' class where they are absent.
struct ExpertsDefaults {
  // 0 in one of these three: the key must be there.
  int64_t count = 0;
  int64_t chosen = 0;
  int64_t intermediate = 0;
  const char* count_key = "num_local_experts";
  const char* count_alias = "num_experts";  // another name that transformers takes; null: none
  const char* intermediate_key = "moe_intermediate_size";
  const char* chosen_key = "num_experts_per_tok";
  bool auxiliary_loss = true;  // true: router_aux_loss_coef is read
};
// Reads the number of experts and of those that a token goes to, their intermediate size and the
// auxiliary loss, and sets experts_per_tile. The activation is that of model.layers[0]. As in
// transformers there is an auxiliary loss only if output_router_logits is true. REQUIRES: `model`
// has a layer.
ExpertsDescription ReadExperts(JsonFields& fields, const ModelDescription& model,
                               const ExpertsDefaults& defaults);

// Reads decoder_sparse_step and mlp_only_layers. Returns a value for each layer: true if it has
// experts. Layer i (from 0) has experts if decoder_sparse_step divides i + 1 and mlp_only_layers
// does not list i.
std::vector<bool> ReadSparseLayers(JsonFields& fields, int64_t layers);

// Gives `experts` to every layer for which `sparse` returns true, in the place of its dense unit
// or, if `join` is not null, beside it. Refuses more experts than kAllExpertsMax, naming `key`.
void SetExperts(JsonFields& fields, const char* key, const ExpertsDescription& experts,
                absl::FunctionRef<bool(int64_t layer)> sparse, ModelDescription& model,
                const JoinDescription* join = nullptr);

// The values of transformers' configuration class for keys of SetSigmoidExperts that are absent.
struct SigmoidExpertsDefaults {
  // 0 in one of these three: the key must be there.
  int64_t count = 0;
  int64_t chosen = 0;
  int64_t intermediate = 0;
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  double scale = 1.0;
  int64_t dense_layers = 1;
};
// Gives every layer from number first_k_dense_replace (from 0) on the experts of DeepSeek-V3 and
// GLM 4.5, which lie in groups, beside a shared expert. Their router scores experts by sigmoids. A
// correction for each expert changes the choice but not the weights (RouterDescription).
void SetSigmoidExperts(JsonFields& fields, const SigmoidExpertsDefaults& defaults,
                       ModelDescription& model);

// Gives layers a window of sliding_window tokens as Qwen does. They are the sliding_attention
// layers of layer_types or, if that is absent, all from number max_window_layers (from 0) on. If
// use_sliding_window is not true or sliding_window is null, no layer gets one, and
// sliding_attention in layer_types is refused.
void ReadQwenWindows(JsonFields& fields, ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_CONFIG_READERS_H_

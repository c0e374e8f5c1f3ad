// The description of a decoder: which parts each layer has, their shapes, and their names on disk.
// A family's reader (engine/hf/families) makes it from config.json. Layout, layer code, plan and
// export follow it and do not ask for the family.
#ifndef MEGATRAIN_ENGINE_MODEL_MODEL_DESCRIPTION_H_
#define MEGATRAIN_ENGINE_MODEL_MODEL_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/delta_args.h"
#include "engine/device/expert_args.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

enum class RopeType { kDefault, kLinear, kLlama3, kYarn, kLongrope, kProportional };
// Returns transformers' name: "default".
const char* RopeTypeName(RopeType type);

// The settings of rotary embeddings, as in transformers' modeling_rope_utils.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  int64_t rotary_dim = 0;    // the first (of latents the last) elements of a head, rotated; even
  bool interleaved = false;  // pairs are (2 i, 2 i + 1), not (i, i + rotary_dim / 2)
  double theta = 10000.0;
  double factor = 1.0;                 // linear, llama3, yarn, longrope, proportional
  double low_frequency_factor = 1.0;   // llama3
  double high_frequency_factor = 4.0;  // llama3
  int64_t original_positions = 0;      // llama3, yarn, longrope: original_max_position_embeddings
  double beta_fast = 32.0;             // yarn
  double beta_slow = 1.0;              // yarn
  // yarn, longrope: multiplies cosine and sine; 0 = the type's own default (rope.h).
  double attention_factor = 0.0;
  bool truncate = true;       // yarn: round the corrected range to whole dimensions
  int64_t turning_pairs = 0;  // proportional: the first pairs; the angles of the others are 0
  // A factor of attention's scores (DeepSeek-V3): (0.1 mscale_all_dim ln(factor) + 1)^2, or 1.
  double score_factor = 1.0;
  // longrope, [rotary_dim / 2]: frequencies are divided by the first list where sequences have up
  // to original_positions tokens, by the second where they may be longer. The length that counts is
  // data.sequence_length in training and that of the longest prompt with its answer in generation.
  // transformers looks at the longest document of each batch.
  std::vector<double> short_factors, long_factors;
  // > 0: the rotated elements at position p are multiplied by 1 + position_scale * ln(1 + floor(p /
  // original_positions)) (Ministral 3's queries).
  double position_scale = 0.0;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

enum class QkNorm {
  kNone,
  kHead,  // each head of queries and keys is normed, with one weight [head_dim]
  kFull,  // all heads together, with weights [heads head_dim] and [kv_heads head_dim]
};

// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2): queries, and keys with values, are
// projected to latents, normed, and projected to heads. The end of each query and key is rotated,
// and that of keys is one for all heads, projected beside their latent.
struct LatentDescription {
  int64_t key_value_rank = 0;  // of the latent of keys and values; 0: there are no latents
  int64_t query_rank = 0;      // 0: queries have no latent and are projected as usual
  int64_t rotary_dim = 0;      // the last elements of queries and keys, which are rotated
  int64_t value_dim = 0;       // of a head's values
  double norm_epsilon = 1e-6;  // of the latents' norms

  bool is_there() const { return key_value_rank > 0; }
  friend bool operator==(const LatentDescription&, const LatentDescription&) = default;
};

// Causal self-attention with queries, keys and values projected from the same rows.
struct AttentionDescription {
  int64_t heads = 0;     // of queries
  int64_t kv_heads = 0;  // of keys and values; divides heads
  int64_t head_dim = 0;  // of queries and keys
  LatentDescription latent;
  double score_scale = 0.0;  // scores are score_scale * q.k
  int64_t window = 0;        // as AttentionShaping; 0: all earlier tokens
  double softcap = 0.0;      // as AttentionShaping; 0: none
  bool sinks = false;        // self_attn.sinks [heads], as in AttentionShaping
  bool qkv_bias = false;     // with latents: of the projections to them
  bool output_bias = false;
  bool fused_qkv = false;  // on disk self_attn.qkv_proj, else q_proj, k_proj and v_proj
  // The result is multiplied by sigmoid(gate). Gates are projected with the queries: on disk
  // self_attn.q_proj has head_dim rows of queries, then as many of gates, for each head.
  bool output_gate = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool value_norm = false;  // each head of values is normed, without a weight; needs a QkNorm
  // Values are the projected keys, before the keys' norm and rotation; needs a value_norm.
  bool values_are_keys = false;
  // Indices in ModelDescription::ropes; -1: not rotated.
  int query_rope = 0;
  int key_rope = 0;
  // The number of the set of keys and values that this layer makes for later layers or, if it
  // projects none, uses. Sets are counted from 0 in the order of the layers that make them. -1: the
  // layer's keys and values are for itself alone.
  int key_set = -1;
  bool projects_keys = true;  // false: it has queries only

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t gate_width() const { return output_gate ? q_width() : 0; }
  int64_t value_dim() const { return latent.is_there() ? latent.value_dim : head_dim; }
  // A token's keys and values.
  int64_t cache_width() const { return kv_heads * (head_dim + value_dim()); }
  // With latents: a token's keys but for their rotated ends, with its values.
  int64_t expanded_width() const { return cache_width() - kv_heads * latent.rotary_dim; }
  // The elements of a token that are projected: queries, gates, keys and values, or their latents.
  int64_t projected_width() const {
    if (latent.is_there()) {
      const int64_t queries = latent.query_rank > 0 ? latent.query_rank : q_width();
      return queries + latent.key_value_rank + latent.rotary_dim;
    }
    const int64_t keys = projects_keys ? kv_width() : 0;
    return q_width() + gate_width() + (values_are_keys ? 1 : 2) * keys;
  }
  // With a QkNorm: the rotated queries and keys, and normed values.
  int64_t rotated_width() const {
    return q_width() + (projects_keys ? (value_norm ? 2 : 1) * kv_width() : 0);
  }
  friend bool operator==(const AttentionDescription&, const AttentionDescription&) = default;
};

// How a delta net's projections lie on disk.
enum class DeltaTensors {
  kApart,  // linear_attn.in_proj_qkv [Q | K | V], in_proj_z, in_proj_b, in_proj_a (Qwen3.5)
  // linear_attn.in_proj_qkvz with rows [q | k | v | z] for each key head, in_proj_ba with rows
  // [b | a]; v, z, b and a are those of the value heads of the key head (Qwen3-Next)
  kByKeyHead,
};

// A gated delta net: linear attention whose memory is a state of one size for each value head
// (engine/device/delta_args.h). A causal convolution goes over queries, keys and values before, and
// a gated norm over the result behind. Yang et al. 2024.
struct DeltaNetDescription {
  int64_t key_heads = 0;    // of queries too; 0: the layer has none
  int64_t value_heads = 0;  // a multiple of key_heads
  int64_t key_dim = 0;      // of a head
  int64_t value_dim = 0;
  int64_t kernel = 0;  // the tokens that the convolution takes, 2 to kCausalConvKernelMax
  DeltaTensors tensors = DeltaTensors::kApart;

  int64_t keys_width() const { return key_heads * key_dim; }
  int64_t values_width() const { return value_heads * value_dim; }
  // Queries, keys and values, which the convolution takes.
  int64_t channels() const { return 2 * keys_width() + values_width(); }
  // The channels, the norm's gates z, and one b and one a for each value head.
  int64_t projected_width() const { return channels() + values_width() + 2 * value_heads; }
  friend bool operator==(const DeltaNetDescription&, const DeltaNetDescription&) = default;
};

// down(activation(gate(x)) * up(x))
struct FeedForwardDescription {
  int64_t intermediate = 0;
  GluActivation activation = GluActivation::kSilu;
  bool fused_gate_up = false;  // on disk mlp.gate_up_proj, else gate_proj and up_proj

  friend bool operator==(const FeedForwardDescription&, const FeedForwardDescription&) = default;
};

// How a router chooses experts for a token from its logits, one an expert, in FP32. Ties go to the
// lower index. RouteArgs (engine/device/expert_args.h) has the formulas.
struct RouterDescription {
  RouterScores scores = RouterScores::kSoftmax;
  bool normalized = true;         // the weights of the chosen are divided by their sum
  double scale = 1.0;             // a factor of the weights
  int64_t groups = 1;             // the experts are in so many groups of equal size
  int64_t chosen_groups = 1;      // the experts of a token are of this many groups at most
  bool bias = false;              // of the logits
  bool correction = false;        // a value an expert that changes the choice but not the weights
  std::string name = "mlp.gate";  // on disk
  // Names on disk, empty if the tensor is not there:
  // [hidden]. The logits are hidden^-1/2 W (input_scale * norm(x)), where x is the stream and its
  // norm has no weight. Without it the router takes what the experts take.
  std::string input_scale;
  std::string expert_scales;  // [experts], further factors of the weights of the chosen

  friend bool operator==(const RouterDescription&, const RouterDescription&) = default;
};

// How the experts' matrices lie on disk. E experts, I intermediate, H hidden.
enum class ExpertTensors {
  kApart,    // experts.E.gate_proj [I, H], up_proj [I, H], down_proj [H, I]
  kStacked,  // experts.gate_up_proj [E, 2 I, H] (gate, then up), experts.down_proj [E, H, I]
  // experts.gate_up_proj [E, H, 2 I] (gate and up in turn), experts.down_proj [E, I, H] (gpt-oss)
  kTransposed,
};

// A mixture of experts: each token goes to `chosen` of `count` experts, which are gated units of
// their own, and the results are summed with the router's weights.
struct ExpertsDescription {
  int64_t count = 0;  // 0: the layer has a FeedForwardDescription's unit instead
  int64_t chosen = 0;
  int64_t intermediate = 0;
  GluActivation activation = GluActivation::kSilu;
  double limit = 0.0, slope = 0.0;  // for kClampedSilu
  bool bias = false;                // both products have biases
  ExpertTensors tensors = ExpertTensors::kApart;
  std::string name = "mlp.experts";  // on disk, the prefix of the experts' names
  // On disk, the names of an expert's matrices where they lie apart.
  std::string gate_name = "gate_proj", up_name = "up_proj", down_name = "down_proj";
  RouterDescription router;
  // A unit that every token goes through beside the experts; 0: none.
  int64_t shared_intermediate = 0;
  std::string shared_name = "mlp.shared_experts";
  // The unit's result is multiplied by sigmoid(w x), with w [1, H] on disk as shared_name +
  // "_gate".
  bool shared_gate = false;
  // The experts whose weights are streamed as one tile (model_layout.h). No result depends on it.
  int64_t experts_per_tile = 0;
  double auxiliary_loss = 0.0;  // its coefficient where a job does not say; 0: none

  bool transposed() const { return tensors == ExpertTensors::kTransposed; }
  int64_t tiles() const {
    return count == 0 ? 0 : (count + experts_per_tile - 1) / experts_per_tile;
  }
  friend bool operator==(const ExpertsDescription&, const ExpertsDescription&) = default;
};

// The most elements of a tile's experts together, unless one expert has more: 256 MiB of BF16.
inline constexpr int64_t kExpertTileElements = int64_t{128} << 20;
// Returns the experts of a tile: as many as kExpertTileElements allows, and one at least, spread
// evenly over the tiles.
int64_t ExpertsPerTile(int64_t experts, int64_t hidden, int64_t intermediate);

// A part between two norms, either of which may be missing (its name on disk is then empty):
//   x += residual_scale * post_norm(part(norm(x)))
struct NormNames {
  std::string norm;
  std::string post_norm;

  friend bool operator==(const NormNames&, const NormNames&) = default;
};

// The input that a layer has from the token itself (Gemma 4's per-layer embeddings;
// engine/model/layer/per_layer_input.h has the formula). On disk the tables of all layers are the
// columns of one matrix, and the projections from the embedding the rows of one.
struct PerLayerInputDescription {
  int64_t width = 0;       // 0: none
  int64_t vocabulary = 0;  // the rows of the table
  GluActivation activation = GluActivation::kGeluTanh;

  friend bool operator==(const PerLayerInputDescription&,
                         const PerLayerInputDescription&) = default;
};

// A dense unit beside the experts. The layer's second half is then
//   x += post_norm(dense_post_norm(mlp(norm(x))) + experts.post_norm(experts(experts.norm(x))))
// with LayerDescription::feed_forward_norms and feed_forward.
struct JoinDescription {
  NormNames experts;
  std::string dense_post_norm;

  friend bool operator==(const JoinDescription&, const JoinDescription&) = default;
};

// The part of a layer's first half that mixes tokens.
enum class AttentionKind { kSoftmax, kLatent, kDeltaNet };

struct LayerDescription {
  NormNames attention_norms = {"input_layernorm", ""};
  AttentionDescription attention;  // heads is 0 if the layer has a delta net
  DeltaNetDescription delta_net;   // key_heads is 0 if it has none
  NormNames feed_forward_norms = {"post_attention_layernorm", ""};
  FeedForwardDescription feed_forward;       // intermediate is 0 if the layer has experts alone
  ExpertsDescription experts;                // count is 0 if it has none
  JoinDescription join;                      // if it has both
  double residual_scale = 1.0;               // 1 where there are post-norms
  PerLayerInputDescription per_layer_input;  // of a layer without experts
  // The stream after the layer is multiplied by `layer_scalar`, which is not trained.
  bool output_scale = false;

  bool is_dense() const { return experts.count == 0; }
  bool joins() const { return experts.count > 0 && feed_forward.intermediate > 0; }
  // The norm before the experts.
  const std::string& experts_norm() const {
    return joins() ? join.experts.norm : feed_forward_norms.norm;
  }
  AttentionKind attention_kind() const {
    if (delta_net.key_heads > 0) return AttentionKind::kDeltaNet;
    return attention.latent.is_there() ? AttentionKind::kLatent : AttentionKind::kSoftmax;
  }
  // The elements of a token that the first half projects from its input: queries, keys and values
  // or their latents. mixed_width() has those that it projects back: attention's result.
  int64_t projected_width() const {
    return delta_net.key_heads > 0 ? delta_net.projected_width() : attention.projected_width();
  }
  // The elements of a token that the gradient by `projected` takes. Softmax attention has room for
  // separate gradients of keys and values in it, even if values are keys or the layer projects
  // neither.
  int64_t projected_gradient_width() const {
    if (attention_kind() != AttentionKind::kSoftmax) return projected_width();
    return attention.q_width() + attention.gate_width() + attention.cache_width();
  }
  // The elements of a token's queries, whole keys and values, of which latent attention computes
  // the gradients; 0 without latents.
  int64_t expanded_gradient_width() const {
    return attention.latent.is_there() ? attention.q_width() + attention.cache_width() : 0;
  }
  // True if what mixes tokens ends with a gate, whose result is cheap to compute again.
  bool gates_result() const {
    return attention_kind() == AttentionKind::kDeltaNet || attention.output_gate;
  }
  int64_t mixed_width() const {
    return delta_net.key_heads > 0 ? delta_net.values_width()
                                   : attention.heads * attention.value_dim();
  }

  friend bool operator==(const LayerDescription&, const LayerDescription&) = default;
};

// A larger model, of images and text, that the text model is a part of, and how the directory of
// the whole names the tensors. The text model is trained; the tensors of the other parts are
// carried through unchanged (engine/hf/carried_tensors.h).
struct WrapperDescription {
  std::string family;                              // config.json's model_type; "" if there is none
  std::string model_prefix = "model.";             // on disk, in place of a text model's "model."
  std::string head_prefix;                         // on disk, before "lm_head.weight"
  std::vector<std::string> carried_prefixes;       // of the names of the other parts' tensors
  int64_t carried_tensors = 0, carried_bytes = 0;  // in the directory that was read

  bool is_there() const { return !family.empty(); }
  // Returns the name on disk of a text model's tensor: in Gemma 4's wrapper of "model.norm.weight"
  // "model.language_model.norm.weight".
  std::string OnDisk(const std::string& name) const;
  // Returns true if the name is of a tensor that is carried through.
  bool Carries(const std::string& name_on_disk) const;
};

struct ModelDescription {
  std::string family;  // config.json's model_type, of the text model
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  std::vector<LayerDescription> layers;
  std::vector<RopeConfig> ropes;
  int64_t max_positions = 0;
  double norm_epsilon = 1e-6;
  bool one_plus_norms = false;   // norms multiply by 1 + weight, and weights are initialised to 0
  double embedding_scale = 1.0;  // a factor of the embedding's rows
  bool rounds_embedding_scale = false;  // the factor is first rounded to the activations' type
  int64_t padding_id = -1;              // as EmbeddingBackwardArgs
  double logit_scale = 1.0;             // a factor of the logits
  double logit_softcap = 0.0;           // as CrossEntropyArgs, of the scaled logits; 0: none
  bool tied_embeddings = false;
  double initializer_range = 0.02;
  WrapperDescription wrapper;

  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
};

// The shape of a decoder whose layers are alike.
struct UniformShape {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t max_positions = 0;
};
// Returns Llama's description of this shape, from which other families' differ.
ModelDescription UniformModel(const UniformShape& shape);

// Returns the number of parameters of the whole model; a tied matrix counts once. REQUIRES, here
// and below: CheckModel accepts the model.
int64_t ParameterCount(const ModelDescription& model);

// Returns the number of parameters that one token uses: of the experts the chosen ones, of a
// per-layer input's table one row.
int64_t ActiveParameterCount(const ModelDescription& model);

// Returns the attention of the first layer that has softmax attention; without one, the first
// layer's. The result lives as long as `model`. REQUIRES: there are layers.
const AttentionDescription& FirstAttention(const ModelDescription& model);

// Returns the largest number of experts of a layer; 0 if no layer has any.
int64_t MostExperts(const ModelDescription& model);

// Return the layer that makes a set of keys and values, and the last one that uses it. REQUIRES:
// there is such a set.
int MakerOfKeys(const ModelDescription& model, int key_set);
int LastUserOfKeys(const ModelDescription& model, int key_set);

// Returns the layers, ascending, whose attention or delta net differs from all before.
std::vector<int> LayersOfDifferentAttention(const ModelDescription& model);

// Returns the description for people, in lines: the embedding, the ropes, each kind of layer with
// the numbers of its layers, and the head.
std::string DescribeModel(const ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_MODEL_DESCRIPTION_H_

// ModelDescription describes a decoder: which parts each layer has, their shapes, and their names
// on disk. A family's reader (engine/hf/families) makes it from config.json. Layout, layer code,
// plan and export follow it and do not ask for the family.
#ifndef MEGATRAIN_ENGINE_MODEL_MODEL_DESCRIPTION_H_
#define MEGATRAIN_ENGINE_MODEL_MODEL_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/kernel_args.h"
#include "engine/model/attention_description.h"
#include "engine/model/feed_forward_description.h"

namespace megatrain {

// A part between two norms, either of which may be missing (its name is then empty):
//   x += residual_scale * post_norm(part(norm(x)))
// Names are those on disk, within the layer and without the end ".weight": "input_layernorm".
struct NormNames {
  std::string norm;
  std::string post_norm;

  friend bool operator==(const NormNames&, const NormNames&) = default;
};

// An input that a layer takes from the token itself (Gemma 4's per-layer embeddings;
// engine/model/layer/per_layer_input.h has the formula). On disk the tables of all layers are
// columns of one matrix, and the projections from the embedding are rows of another.
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
  PerLayerInputDescription per_layer_input;  // the same in all layers; none beside experts
  // The residual stream after the layer is multiplied by the tensor `layer_scalar`, which is not
  // trained.
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
  // Elements per token of the first half's input projection, `projected`: queries, gates, keys and
  // values, or their latents, or the inputs of a delta net.
  int64_t projected_width() const {
    return delta_net.key_heads > 0 ? delta_net.projected_width() : attention.projected_width();
  }
  // Elements per token of the buffer for the gradient with respect to `projected`. For softmax
  // attention it has room for separate gradients of keys and values, even if values are keys or the
  // layer projects neither.
  int64_t projected_gradient_width() const {
    if (attention_kind() != AttentionKind::kSoftmax) return projected_width();
    return attention.q_width() + attention.gate_width() + attention.cache_width();
  }
  // Elements per token of the gradients of queries and of expanded keys and values, which the
  // backward pass of latent attention computes. 0 without latents.
  int64_t expanded_gradient_width() const {
    return attention.latent.is_there() ? attention.q_width() + attention.cache_width() : 0;
  }
  // Returns true if attention or the delta net ends with a gate. The gated result is cheap to
  // recompute.
  bool gates_result() const {
    return attention_kind() == AttentionKind::kDeltaNet || attention.output_gate;
  }
  // Elements per token of the result of attention or the delta net, before the output projection.
  int64_t mixed_width() const {
    return delta_net.key_heads > 0 ? delta_net.values_width()
                                   : attention.heads * attention.value_dim();
  }

  friend bool operator==(const LayerDescription&, const LayerDescription&) = default;
};

// A larger model, of images and text, that the text model is a part of, and how the directory of
// the whole names the tensors. The text model is trained; the tensors of the other parts are
// carried through unchanged (engine/hf/carried_tensors.h). A text model that was taken out of a
// wrapper has no `family`, but may have kept the wrapper's model_prefix.
struct WrapperDescription {
  std::string family;                              // config.json's model_type; "" if there is none
  std::string model_prefix = "model.";             // on disk, in place of a text model's "model."
  std::string head_prefix;                         // on disk, before "lm_head.weight"
  std::vector<std::string> carried_prefixes;       // of the names of the other parts' tensors
  int64_t carried_tensors = 0, carried_bytes = 0;  // in the directory that was read

  bool is_there() const { return !family.empty(); }
  // Returns the name on disk of the text model's tensor `name`. In Gemma 4's wrapper it is
  // "model.language_model.norm.weight" for "model.norm.weight". With the default prefixes it is
  // `name`.
  std::string OnDisk(const std::string& name) const;
  // Returns true if the name is of a tensor that is carried through.
  bool Carries(const std::string& name_on_disk) const;
};

// The layer templates compute a description that CheckModel (model_check.h) accepts.
struct ModelDescription {
  std::string family;  // config.json's model_type, of the text model
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  std::vector<LayerDescription> layers;
  std::vector<RopeConfig> ropes;
  int64_t max_positions = 0;  // the most tokens of a sequence
  double norm_epsilon = 1e-6;
  bool one_plus_norms = false;   // norms multiply by 1 + weight, and weights are initialized to 0
  double embedding_scale = 1.0;  // a factor of the embedding's rows
  bool rounds_embedding_scale = false;  // the factor is first rounded to the activations' type
  int64_t padding_id = -1;              // as EmbeddingBackwardArgs::padding_id; -1: none
  double logit_scale = 1.0;             // a factor of the logits
  double logit_softcap = 0.0;  // as CrossEntropyArgs::softcap, of the scaled logits; 0: none
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
// Returns the description of a Llama model of this shape, with one rope over whole heads. The rest
// has the defaults of ModelDescription.
ModelDescription UniformModel(const UniformShape& shape);

// Returns the attention of the first layer that has softmax attention; without one, the first
// layer's. The result lives as long as `model`. REQUIRES: there are layers.
const AttentionDescription& FirstAttention(const ModelDescription& model);

// Returns the largest number of experts of a layer; 0 if no layer has any.
int64_t MostExperts(const ModelDescription& model);

// Return the index of the layer that makes a set of keys and values
// (AttentionDescription::key_set), and of the last layer that uses it. REQUIRES: there is such a
// set.
int MakerOfKeys(const ModelDescription& model, int key_set);
int LastUserOfKeys(const ModelDescription& model, int key_set);

// Returns the indices of the layers, ascending, whose attention or delta net differs from those of
// all layers before.
std::vector<int> LayersOfDifferentAttention(const ModelDescription& model);

// Returns the description for people, in lines: the embedding, the ropes, each kind of layer with
// the numbers of its layers, and the head.
std::string DescribeModel(const ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_MODEL_DESCRIPTION_H_

#include "engine/model/model_check.h"

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

// Something that a layer has, as the end of a sentence, and whether it is computed wrongly.
struct Combination {
  bool wrong;
  const char* what;
};
std::string FirstWrong(std::initializer_list<Combination> combinations) {
  for (const Combination& one : combinations) {
    if (one.wrong) return one.what;
  }
  return "";
}

bool Divides(int64_t divisor, int64_t value) { return divisor > 0 && value % divisor == 0; }

// Each function below returns the first thing that a layer has and that is computed wrongly; "" if
// there is none.

std::string CheckRope(const ModelDescription& model, int rope, int64_t head) {
  if (rope < 0) return "";
  if (rope >= static_cast<int>(model.ropes.size())) {
    return absl::StrCat("rope ", rope, " of a model with ", model.ropes.size());
  }
  const int64_t dim = model.ropes[static_cast<size_t>(rope)].rotary_dim;
  return dim <= head ? ""
                     : absl::StrCat("rope ", rope, " of ", dim, " elements of a head's ", head);
}

// The layer that makes a set of keys and values must come before those that use it.
std::string CheckSharedKeys(const ModelDescription& model, const AttentionDescription& a) {
  if (a.projects_keys) {
    // The gradients by the keys are summed over the layers that use them, the last one first.
    const bool alone =
        a.key_set >= 0 && LastUserOfKeys(model, a.key_set) == MakerOfKeys(model, a.key_set);
    return alone ? "shared keys that no other layer uses" : "";
  }
  if (a.key_set < 0) return "neither keys of its own nor shared ones";
  const AttentionDescription& maker =
      model.layers[static_cast<size_t>(MakerOfKeys(model, a.key_set))].attention;
  return FirstWrong({{!maker.projects_keys, "shared keys that no layer before it makes"},
                     {maker.kv_heads != a.kv_heads || maker.head_dim != a.head_dim,
                      "shared keys of other heads than its own"}});
}

std::string CheckLatents(const AttentionDescription& a) {
  return FirstWrong({{a.kv_heads != a.heads, "latents and fewer heads of keys than of queries"},
                     {a.qk_norm != QkNorm::kNone, "latents and norms of queries and keys"},
                     {a.value_norm || a.values_are_keys, "latents and a value_norm"},
                     {a.output_gate, "latents and an output_gate"},
                     {a.sinks, "latents and sinks"},
                     {a.fused_qkv, "latents and fused_qkv"},
                     {a.key_set >= 0, "latents and shared keys"}});
}

std::string CheckHeads(const AttentionDescription& a) {
  const bool plain = a.projects_keys && !a.values_are_keys && !a.output_gate;
  return FirstWrong(
      {{!Divides(a.kv_heads, a.heads), "kv_heads that do not divide heads"},
       {a.value_norm && a.qk_norm == QkNorm::kNone, "a value_norm without a qk_norm"},
       {a.values_are_keys && !a.value_norm, "values_are_keys without a value_norm"},
       {a.fused_qkv && !plain, "fused_qkv of other parts than queries, keys and values"}});
}

std::string CheckAttention(const ModelDescription& model, const LayerDescription& layer) {
  const AttentionDescription& a = layer.attention;
  if (layer.attention_kind() == AttentionKind::kDeltaNet) {
    return FirstWrong({{a.heads > 0, "a delta net and heads of attention"},
                       {!Divides(layer.delta_net.key_heads, layer.delta_net.value_heads),
                        "a delta net whose key_heads do not divide value_heads"}});
  }
  const bool latents = a.latent.is_there();
  std::string wrong = latents ? CheckLatents(a) : CheckHeads(a);
  if (wrong.empty()) wrong = CheckSharedKeys(model, a);
  for (const int rope : {a.query_rope, a.key_rope}) {
    if (wrong.empty()) wrong = CheckRope(model, rope, latents ? a.latent.rotary_dim : a.head_dim);
  }
  return wrong;
}

std::string CheckExperts(const ModelDescription& model, const LayerDescription& layer) {
  const ExpertsDescription& e = layer.experts;
  const NormNames& outer = layer.feed_forward_norms;
  const NormNames& inner = layer.join.experts;
  const bool joins = layer.joins();
  const bool all_norms = !outer.norm.empty() && !outer.post_norm.empty() && !inner.norm.empty() &&
                         !inner.post_norm.empty() && !layer.join.dense_post_norm.empty();
  return FirstWrong(
      {{e.chosen < 1 || e.chosen > e.count, "more chosen experts than there are, or none"},
       {e.experts_per_tile < 1, "experts without experts_per_tile"},
       {!Divides(e.router.groups, e.count), "experts that the router's groups do not divide"},
       {e.router.chosen_groups > e.router.groups ||
            e.chosen * e.router.groups > e.router.chosen_groups * e.count,
        "more chosen groups than there are, or fewer experts in them than are chosen"},
       // The norm of the router's input would multiply by 1 + input_scale.
       {model.one_plus_norms && !e.router.input_scale.empty(),
        "a router's input_scale and one_plus_norms"},
       {e.shared_gate && e.shared_intermediate == 0, "a shared_gate without a shared expert"},
       // Gate and up are interleaved in transposed experts, and not in a shared one.
       {e.shared_intermediate > 0 && e.transposed(), "a shared expert beside transposed experts"},
       {e.bias && e.tensors == ExpertTensors::kApart, "biases of experts with tensors apart"},
       {layer.per_layer_input.width > 0, "a per-layer input beside experts"},
       {layer.residual_scale != 1.0, "a residual_scale beside experts"},
       {!joins && layer.output_scale, "an output_scale behind experts without a join"},
       {!joins && outer.norm.empty(), "experts without a norm before them"},
       {!joins && !outer.post_norm.empty(), "a post_norm behind experts without a join"},
       {joins && e.shared_intermediate > 0, "a shared expert beside a join"},
       {joins && !all_norms, "a join without all of its norms"}});
}

std::string CheckLayer(const ModelDescription& model, const LayerDescription& layer) {
  const FeedForwardDescription& unit = layer.feed_forward;
  const bool post_norms =
      !layer.attention_norms.post_norm.empty() || !layer.feed_forward_norms.post_norm.empty();
  std::string wrong =
      FirstWrong({{layer.is_dense() && unit.intermediate == 0, "neither a dense unit nor experts"},
                  {unit.intermediate > 0 && unit.activation == GluActivation::kClampedSilu,
                   "a clamped activation of a dense unit"},
                  // The factor would be within the norm.
                  {post_norms && layer.residual_scale != 1.0, "a residual_scale beside post_norms"},
                  // The bias is added unscaled.
                  {layer.attention.output_bias && layer.residual_scale != 1.0,
                   "a residual_scale beside an output_bias"},
                  // The layers' tables are columns of one matrix, and their norm is one.
                  {layer.per_layer_input != model.layers.front().per_layer_input,
                   "a per-layer input that differs from that of layer 0"}});
  if (wrong.empty()) wrong = CheckAttention(model, layer);
  return wrong.empty() && !layer.is_dense() ? CheckExperts(model, layer) : wrong;
}

}  // namespace

absl::Status CheckModel(const ModelDescription& model) {
  if (model.layers.empty()) return absl::InvalidArgumentError("the model has no layers");
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const std::string wrong = CheckLayer(model, model.layers[static_cast<size_t>(i)]);
    if (wrong.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", i, " has ", wrong,
                     ", which is not computed; use a model without it, or add it to the layer "
                     "templates"));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

#include "engine/model/model_description.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"

namespace megatrain {
namespace {

std::string DescribeRope(const RopeConfig& rope) {
  std::string text =
      absl::StrFormat("%s, theta %g, %d elements of a head%s", RopeTypeName(rope.type), rope.theta,
                      rope.rotary_dim, rope.interleaved ? " in neighbouring pairs" : "");
  if (rope.type == RopeType::kProportional) {
    absl::StrAppendFormat(&text, " of which %d turn", 2 * rope.turning_pairs);
  }
  if (rope.type != RopeType::kDefault) absl::StrAppendFormat(&text, ", factor %g", rope.factor);
  if (rope.position_scale > 0) {
    absl::StrAppendFormat(&text, ", growing by %g ln(1 + floor(position / %d))",
                          rope.position_scale, rope.original_positions);
  }
  return text;
}

// "x += 0.22 norm(PART(norm(x)))" with the norms' names, shortened to what is there.
std::string DescribeResidual(const NormNames& norms, double scale, const std::string& part) {
  std::string text = "x += ";
  if (scale != 1.0) absl::StrAppendFormat(&text, "%g ", scale);
  const std::string inner =
      absl::StrCat(part, "(", norms.norm.empty() ? "x" : absl::StrCat(norms.norm, "(x)"), ")");
  return text + (norms.post_norm.empty() ? inner : absl::StrCat(norms.post_norm, "(", inner, ")"));
}

std::string DescribeAttention(const AttentionDescription& a) {
  std::vector<std::string> traits = {
      absl::StrCat(a.heads, " heads (", a.kv_heads, " of keys and values) of ", a.head_dim),
      absl::StrFormat("scores times %.6g", a.score_scale)};
  if (const LatentDescription& latent = a.latent; latent.is_there()) {
    traits.push_back(absl::StrCat("values of ", latent.value_dim));
    if (latent.query_rank > 0) {
      traits.push_back(absl::StrCat("queries from latents of ", FormatCount(latent.query_rank)));
    }
    traits.push_back(absl::StrCat("keys and values from latents of ",
                                  FormatCount(latent.key_value_rank), " beside one rotated end of ",
                                  latent.rotary_dim, " for all keys"));
  }
  if (a.window > 0) traits.push_back(absl::StrCat("window ", FormatCount(a.window)));
  if (a.softcap > 0) traits.push_back(absl::StrFormat("scores capped at %g", a.softcap));
  if (a.qk_norm == QkNorm::kHead) traits.push_back("norms of each query and key head");
  if (a.qk_norm == QkNorm::kFull) traits.push_back("norms of all queries and all keys");
  if (a.value_norm) traits.push_back("norms of each value head (no weight)");
  if (a.values_are_keys) traits.push_back("values are the projected keys");
  if (a.sinks) traits.push_back("a sink of each head");
  if (a.key_set >= 0) {
    traits.push_back(
        absl::StrCat(a.projects_keys ? "makes" : "uses", " shared keys and values ", a.key_set));
  }
  if (a.output_gate) traits.push_back("a gate of each result");
  if (a.qkv_bias) {
    traits.push_back(a.latent.is_there() ? "bias of latents" : "bias of q, k, v");
  }
  if (a.output_bias) traits.push_back("bias of o");
  if (a.fused_qkv) traits.push_back("qkv fused on disk");
  if (a.query_rope < 0 && a.key_rope < 0) {
    traits.push_back("no rotation");
  } else {
    traits.push_back(
        a.query_rope == a.key_rope
            ? absl::StrCat("rope ", a.key_rope)
            : absl::StrCat("rope ", a.query_rope, " for queries, ", a.key_rope, " for keys"));
  }
  return absl::StrJoin(traits, ", ");
}

std::string DescribeDeltaNet(const DeltaNetDescription& d) {
  return absl::StrCat(
      d.key_heads, " heads of queries and keys of ", d.key_dim, ", ", d.value_heads,
      " of values of ", d.value_dim, ", convolution over ", d.kernel, " tokens",
      d.tensors == DeltaTensors::kByKeyHead ? ", projections by key head on disk" : "");
}

const char* GateName(GluActivation activation) {
  switch (activation) {
    case GluActivation::kSilu:
      return "SiLU gate";
    case GluActivation::kGeluTanh:
      return "GELU (tanh) gate";
    case GluActivation::kClampedSilu:
      return "clamped SiLU gate";
  }
  return "";
}

std::string DescribeFeedForward(const FeedForwardDescription& f) {
  return absl::StrCat(FormatCount(f.intermediate), ", ", GateName(f.activation),
                      f.fused_gate_up ? ", gate and up fused on disk" : "");
}

std::string DescribePerLayerInput(const PerLayerInputDescription& p) {
  if (p.width == 0) return "";
  return absl::StrFormat(
      "\n  x += post_per_layer_input_norm(per-layer input(x))\n    %s of each layer for each of %s "
      "tokens, %s",
      FormatCount(p.width), FormatCount(p.vocabulary), GateName(p.activation));
}

std::string DescribeRouter(const RouterDescription& router) {
  std::vector<std::string> traits;
  switch (router.scores) {
    case RouterScores::kSoftmax:
      traits.push_back("softmax of all");
      break;
    case RouterScores::kSoftmaxOfChosen:
      traits.push_back("softmax of the chosen");
      break;
    case RouterScores::kSigmoid:
      traits.push_back("sigmoid of each");
      break;
  }
  if (router.bias) traits.push_back("bias");
  if (router.correction) traits.push_back("a correction of the choice");
  if (router.chosen_groups < router.groups) {
    traits.push_back(absl::StrCat("from ", router.chosen_groups, " of ", router.groups, " groups"));
  }
  if (router.normalized) traits.push_back("weights divided by their sum");
  if (router.scale != 1.0) traits.push_back(absl::StrFormat("weights times %g", router.scale));
  if (!router.input_scale.empty()) traits.push_back("a scaled norm of its own input");
  if (!router.expert_scales.empty()) traits.push_back("weights times factors of the experts");
  return absl::StrJoin(traits, ", ");
}

// Lines for the experts, their router and the shared expert.
std::string DescribeExperts(const ExpertsDescription& e) {
  std::string text = absl::StrCat(e.chosen, " of ", FormatCount(e.count), " experts of ",
                                  FormatCount(e.intermediate), ", ", GateName(e.activation));
  if (e.activation == GluActivation::kClampedSilu) {
    absl::StrAppendFormat(&text, " (limit %g, slope %g)", e.limit, e.slope);
  }
  if (e.bias) text += ", biases";
  if (e.tensors == ExpertTensors::kStacked) text += ", stacked on disk";
  if (e.transposed()) text += ", stacked and transposed on disk";
  absl::StrAppend(&text, "\n    router: ", DescribeRouter(e.router));
  if (e.auxiliary_loss > 0) {
    absl::StrAppendFormat(&text, ", auxiliary loss times %g where it is asked for",
                          e.auxiliary_loss);
  }
  if (e.shared_intermediate > 0) {
    absl::StrAppend(&text, "\n    shared expert of ", FormatCount(e.shared_intermediate),
                    e.shared_gate ? ", gated" : "");
  }
  return text;
}

// The second half of a layer, in lines.
std::string DescribeFeedForwardHalf(const LayerDescription& layer) {
  if (layer.is_dense()) {
    return absl::StrCat(DescribeResidual(layer.feed_forward_norms, layer.residual_scale, "mlp"),
                        "\n    ", DescribeFeedForward(layer.feed_forward));
  }
  if (!layer.joins()) {
    return absl::StrCat(DescribeResidual(layer.feed_forward_norms, layer.residual_scale, "experts"),
                        "\n    ", DescribeExperts(layer.experts));
  }
  const NormNames& experts = layer.join.experts;
  return absl::StrCat("x += ", layer.feed_forward_norms.post_norm, "(", layer.join.dense_post_norm,
                      "(mlp(", layer.feed_forward_norms.norm, "(x))) + ", experts.post_norm,
                      "(experts(", experts.norm, "(x))))\n    ",
                      DescribeFeedForward(layer.feed_forward), "\n    ",
                      DescribeExperts(layer.experts));
}

// "3", "0 to 5" or "0, 2, 4 to 6".
std::string DescribeNumbers(const std::vector<int64_t>& numbers) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    runs.push_back(last == i
                       ? absl::StrCat(numbers[i])
                       : absl::StrCat(numbers[i], last == i + 1 ? ", " : " to ", numbers[last]));
    i = last + 1;
  }
  return absl::StrJoin(runs, ", ");
}

}  // namespace

const char* RopeTypeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kLongrope:
      return "longrope";
    case RopeType::kProportional:
      return "proportional";
  }
  return "";
}

std::string WrapperDescription::OnDisk(const std::string& name) const {
  constexpr std::string_view kModel = "model.";
  return name.starts_with(kModel) ? model_prefix + name.substr(kModel.size()) : head_prefix + name;
}

bool WrapperDescription::Carries(const std::string& name_on_disk) const {
  return std::any_of(carried_prefixes.begin(), carried_prefixes.end(),
                     [&](const std::string& prefix) { return name_on_disk.starts_with(prefix); });
}

ModelDescription UniformModel(const UniformShape& shape) {
  ModelDescription model;
  model.family = "llama";
  model.vocabulary = shape.vocabulary;
  model.hidden = shape.hidden;
  model.max_positions = shape.max_positions;
  LayerDescription layer;
  layer.attention.heads = shape.heads;
  layer.attention.kv_heads = shape.kv_heads;
  layer.attention.head_dim = shape.head_dim;
  layer.attention.score_scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  layer.feed_forward.intermediate = shape.intermediate;
  model.layers.assign(static_cast<size_t>(shape.layers), layer);
  model.ropes.resize(1);
  model.ropes[0].rotary_dim = shape.head_dim;
  return model;
}

int64_t ExpertsPerTile(int64_t experts, int64_t hidden, int64_t intermediate) {
  const int64_t most = std::max<int64_t>(1, kExpertTileElements / (3 * hidden * intermediate));
  const int64_t tiles = (experts + most - 1) / most;
  return (experts + tiles - 1) / tiles;
}

int64_t MostExperts(const ModelDescription& model) {
  int64_t most = 0;
  for (const LayerDescription& layer : model.layers) most = std::max(most, layer.experts.count);
  return most;
}

int MakerOfKeys(const ModelDescription& model, int key_set) {
  int layer = 0;
  while (model.layers[static_cast<size_t>(layer)].attention.key_set != key_set) ++layer;
  return layer;
}

int LastUserOfKeys(const ModelDescription& model, int key_set) {
  int layer = static_cast<int>(model.layer_count()) - 1;
  while (model.layers[static_cast<size_t>(layer)].attention.key_set != key_set) --layer;
  return layer;
}

const AttentionDescription& FirstAttention(const ModelDescription& model) {
  for (const LayerDescription& layer : model.layers) {
    if (layer.attention_kind() == AttentionKind::kSoftmax) return layer.attention;
  }
  return model.layers.front().attention;
}

std::vector<int> LayersOfDifferentAttention(const ModelDescription& model) {
  std::vector<int> layers;
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    const LayerDescription& layer = model.layers[static_cast<size_t>(i)];
    if (std::none_of(layers.begin(), layers.end(), [&](int index) {
          const LayerDescription& known = model.layers[static_cast<size_t>(index)];
          return known.attention == layer.attention && known.delta_net == layer.delta_net;
        })) {
      layers.push_back(i);
    }
  }
  return layers;
}

std::string DescribeModel(const ModelDescription& model) {
  std::string text =
      absl::StrCat("embedding: ", FormatCount(model.vocabulary), " x ", FormatCount(model.hidden));
  if (model.embedding_scale != 1.0)
    absl::StrAppendFormat(&text, ", times %.6g", model.embedding_scale);
  if (model.padding_id >= 0) absl::StrAppend(&text, ", row ", model.padding_id, " is padding");
  absl::StrAppend(&text, "\n");
  for (size_t i = 0; i < model.ropes.size(); ++i) {
    absl::StrAppend(&text, "rope ", i, ": ", DescribeRope(model.ropes[i]), "\n");
  }
  std::vector<std::pair<const LayerDescription*, std::vector<int64_t>>> kinds;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const LayerDescription& layer = model.layers[static_cast<size_t>(i)];
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const auto& known) { return *known.first == layer; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {&layer, {}});
    kind->second.push_back(i);
  }
  for (const auto& [layer, numbers] : kinds) {
    const bool delta_net = layer->attention_kind() == AttentionKind::kDeltaNet;
    absl::StrAppend(
        &text, numbers.size() == 1 ? "layer " : "layers ", DescribeNumbers(numbers), ":\n  ",
        DescribeResidual(layer->attention_norms, layer->residual_scale,
                         delta_net ? "delta net" : "attention"),
        "\n    ",
        delta_net ? DescribeDeltaNet(layer->delta_net) : DescribeAttention(layer->attention),
        "\n  ", DescribeFeedForwardHalf(*layer), DescribePerLayerInput(layer->per_layer_input),
        layer->output_scale ? "\n  x *= layer_scalar" : "", "\n");
  }
  absl::StrAppend(&text, "head: norm", model.one_plus_norms ? " (all norms times 1 + weight)" : "",
                  ", ", model.tied_embeddings ? "the embedding's matrix" : "a matrix of its own");
  if (model.logit_scale != 1.0)
    absl::StrAppendFormat(&text, ", logits times %.6g", model.logit_scale);
  if (model.logit_softcap > 0)
    absl::StrAppendFormat(&text, ", logits capped at %g", model.logit_softcap);
  return text + "\n";
}

}  // namespace megatrain

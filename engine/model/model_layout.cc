#include "engine/model/model_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A bias is initialised to 0; transformers initialises that of a router like a matrix. Scales decay
// as matrices do, as in transformers' Trainer; kConstant is one that is never trained.
enum class Role { kMatrix, kNorm, kBias, kRouterBias, kScale, kBuffer, kConstant };

bool IsNeverTrained(Role role) { return role == Role::kBuffer || role == Role::kConstant; }

struct Part {
  std::string name;
  std::vector<int64_t> shape;
  // Of the first dimension, if it is a part of a stacked tensor.
  int64_t begin = 0, count = 0;
};

// Tensors that lie side by side, because one product takes them all.
struct Group {
  Role role;
  std::vector<Part> parts;
  int64_t* offset;  // receives the group's place
};

using Traits = absl::FunctionRef<TensorTraits(const std::string& name)>;

bool IsFrozen(const Group& group, Traits traits) {
  return IsNeverTrained(group.role) ||
         std::all_of(group.parts.begin(), group.parts.end(),
                     [&](const Part& part) { return traits(part.name).frozen; });
}

void Align(TileLayout& tile) { tile.elements = RoundUp(tile.elements, kTensorAlignmentElements); }

// Appends the group's tensors, the first one aligned.
void Append(const Group& group, Traits traits, TileLayout& tile) {
  Align(tile);
  *group.offset = tile.elements;
  for (const Part& part : group.parts) {
    TensorSpec tensor;
    tensor.name = part.name;
    tensor.shape = part.shape;
    tensor.offset = tile.elements;
    tensor.elements = tensor.whole_elements();
    if (part.count > 0) {
      const int64_t row = tensor.elements / part.shape.front();
      tensor.source_begin = part.begin * row;
      tensor.elements = part.count * row;
    }
    tensor.decays = group.role == Role::kMatrix || group.role == Role::kScale;
    tensor.is_norm = group.role == Role::kNorm;
    tensor.is_bias = group.role == Role::kBias;
    tensor.is_buffer = group.role == Role::kBuffer;
    tensor.is_constant = group.role == Role::kConstant;
    tensor.is_scale = group.role == Role::kScale || tensor.is_constant;
    const bool never = IsNeverTrained(group.role);
    const TensorTraits chosen = never ? TensorTraits() : traits(part.name);
    tensor.frozen = chosen.frozen || never;
    tensor.rates = chosen.rates;
    tile.elements += tensor.tile_elements();
    if (!never) tile.parameters += tensor.elements;
    tile.tensors.push_back(std::move(tensor));
  }
}

// Lays out the groups in their order, those without a gradient behind the others.
void Place(std::vector<Group> groups, Traits traits, TileLayout& tile) {
  const auto frozen = std::stable_partition(
      groups.begin(), groups.end(), [&](const Group& group) { return !IsFrozen(group, traits); });
  for (auto group = groups.begin(); group != frozen; ++group) Append(*group, traits, tile);
  Align(tile);
  const int64_t state_elements = tile.elements;
  for (auto group = frozen; group != groups.end(); ++group) Append(*group, traits, tile);
  Align(tile);
  tile.stateless_elements = tile.elements - state_elements;
}

// Collects the groups of a decoder layer's tile.
class LayerTile {
 public:
  LayerTile(const ModelDescription& model, int layer, TileKind kind)
      : d_(model.layers[static_cast<size_t>(layer)]),
        hidden_(model.hidden),
        prefix_(absl::StrCat("model.layers.", layer, ".")) {
    tile_.kind = kind;
    tile_.layer = layer;
  }

  LayerTile& Attention() {
    const AttentionDescription& a = d_.attention;
    const int64_t q = a.q_width(), kv = a.kv_width();
    Norm(d_.attention_norms.norm, hidden_, &o_.attention_norm);
    if (a.fused_qkv) {
      Matrix({{"self_attn.qkv_proj.weight", {a.qkv_width(), hidden_}}}, &o_.in_projection);
      if (a.qkv_bias) Bias({{"self_attn.qkv_proj.bias", {a.qkv_width()}}}, &o_.in_projection_bias);
    } else {
      std::vector<Part> matrices = {{"self_attn.q_proj.weight", {q, hidden_}},
                                    {"self_attn.k_proj.weight", {kv, hidden_}}};
      std::vector<Part> biases = {{"self_attn.q_proj.bias", {q}}, {"self_attn.k_proj.bias", {kv}}};
      if (!a.values_are_keys) {
        matrices.push_back({"self_attn.v_proj.weight", {kv, hidden_}});
        biases.push_back({"self_attn.v_proj.bias", {kv}});
      }
      Matrix(std::move(matrices), &o_.in_projection);
      if (a.qkv_bias) Bias(std::move(biases), &o_.in_projection_bias);
    }
    if (a.qk_norm != QkNorm::kNone) {
      const bool full = a.qk_norm == QkNorm::kFull;
      Norm("self_attn.q_norm", full ? q : a.head_dim, &o_.q_norm);
      Norm("self_attn.k_norm", full ? kv : a.head_dim, &o_.k_norm);
    }
    // Initialised like a matrix and decaying, as in transformers.
    if (a.sinks) Matrix({{"self_attn.sinks", {a.heads}}}, &o_.sinks);
    Matrix({{"self_attn.o_proj.weight", {hidden_, q}}}, &o_.o);
    if (a.output_bias) Bias({{"self_attn.o_proj.bias", {hidden_}}}, &o_.o_bias);
    Norm(d_.attention_norms.post_norm, hidden_, &o_.attention_post_norm);
    return *this;
  }

  LayerTile& FeedForward() {
    Norm(d_.feed_forward_norms.norm, hidden_, &o_.feed_forward_norm);
    GatedUnit("mlp", d_.feed_forward.intermediate, d_.feed_forward.fused_gate_up);
    Norm(d_.feed_forward_norms.post_norm, hidden_, &o_.feed_forward_post_norm);
    OutputScale();
    return *this;
  }

  LayerTile& Join() {
    Norm(d_.feed_forward_norms.norm, hidden_, &o_.feed_forward_norm);
    GatedUnit("mlp", d_.feed_forward.intermediate, d_.feed_forward.fused_gate_up);
    Norm(d_.join.dense_post_norm, hidden_, &o_.dense_post_norm);
    Norm(d_.join.experts.post_norm, hidden_, &o_.experts_post_norm);
    Norm(d_.feed_forward_norms.post_norm, hidden_, &o_.feed_forward_post_norm);
    OutputScale();
    return *this;
  }

  LayerTile& Router() {
    const ExpertsDescription& e = d_.experts;
    Norm(d_.experts_norm(), hidden_, &o_.feed_forward_norm);
    if (!e.router.input_scale.empty()) {
      Add(Role::kScale, {{e.router.input_scale, {hidden_}}}, &o_.router_input_scale);
    }
    Matrix({{e.router.name + ".weight", {e.count, hidden_}}}, &o_.router);
    if (e.router.bias) {
      Add(Role::kRouterBias, {{e.router.name + ".bias", {e.count}}}, &o_.router_bias);
    }
    if (e.router.correction) {
      Add(Role::kBuffer, {{e.router.name + ".e_score_correction_bias", {e.count}}},
          &o_.router_correction);
    }
    if (!e.router.expert_scales.empty()) {
      Add(Role::kScale, {{e.router.expert_scales, {e.count}}}, &o_.router_expert_scales);
    }
    if (e.shared_intermediate > 0) GatedUnit(e.shared_name, e.shared_intermediate, false);
    return *this;
  }

  LayerTile& Experts(int64_t first, int64_t experts) {
    const ExpertsDescription& e = d_.experts;
    tile_.first_expert = first;
    tile_.experts = experts;
    const auto stacked = [&](const std::string& name, std::vector<int64_t> shape) {
      shape.insert(shape.begin(), e.count);
      return std::vector<Part>{{absl::StrCat(e.name, ".", name), std::move(shape), first, experts}};
    };
    if (e.tensors == ExpertTensors::kApart) {
      std::vector<Part> gate_up, down;
      for (int64_t expert = first; expert < first + experts; ++expert) {
        const std::string name = absl::StrCat(e.name, ".", expert, ".");
        gate_up.push_back({name + e.gate_name + ".weight", {e.intermediate, hidden_}});
        gate_up.push_back({name + e.up_name + ".weight", {e.intermediate, hidden_}});
        down.push_back({name + e.down_name + ".weight", {hidden_, e.intermediate}});
      }
      Matrix(std::move(gate_up), &o_.expert_gate_up);
      Matrix(std::move(down), &o_.expert_down);
    } else {
      const int64_t up = 2 * e.intermediate, down = e.intermediate;
      Matrix(stacked("gate_up_proj", e.transposed() ? std::vector<int64_t>{hidden_, up}
                                                    : std::vector<int64_t>{up, hidden_}),
             &o_.expert_gate_up);
      Matrix(stacked("down_proj", e.transposed() ? std::vector<int64_t>{down, hidden_}
                                                 : std::vector<int64_t>{hidden_, down}),
             &o_.expert_down);
    }
    if (e.bias) {
      Bias(stacked("gate_up_proj_bias", {2 * e.intermediate}), &o_.expert_gate_up_bias);
      Bias(stacked("down_proj_bias", {hidden_}), &o_.expert_down_bias);
    }
    return *this;
  }

  TileLayout Build(Traits traits) {
    Place(std::move(groups_), traits, tile_);
    return std::move(tile_);
  }

 private:
  void Add(Role role, std::vector<Part> parts, int64_t* offset) {
    for (Part& part : parts) part.name.insert(0, prefix_);
    groups_.push_back({role, std::move(parts), offset});
  }
  void Norm(const std::string& name, int64_t width, int64_t* offset) {
    if (!name.empty()) Add(Role::kNorm, {{name + ".weight", {width}}}, offset);
  }
  void OutputScale() {
    if (d_.output_scale) Add(Role::kConstant, {{"layer_scalar", {1}}}, &o_.output_scale);
  }
  void Matrix(std::vector<Part> parts, int64_t* offset) {
    Add(Role::kMatrix, std::move(parts), offset);
  }
  void Bias(std::vector<Part> parts, int64_t* offset) {
    Add(Role::kBias, std::move(parts), offset);
  }
  void GatedUnit(const std::string& name, int64_t intermediate, bool fused) {
    if (fused) {
      Matrix({{name + ".gate_up_proj.weight", {2 * intermediate, hidden_}}}, &o_.gate_up);
    } else {
      Matrix({{name + ".gate_proj.weight", {intermediate, hidden_}},
              {name + ".up_proj.weight", {intermediate, hidden_}}},
             &o_.gate_up);
    }
    Matrix({{name + ".down_proj.weight", {hidden_, intermediate}}}, &o_.down);
  }

  const LayerDescription& d_;
  const int64_t hidden_;
  const std::string prefix_;
  TileLayout tile_;
  LayerOffsets& o_ = tile_.offsets;
  std::vector<Group> groups_;
};

// Appends the layer's tiles and stages.
void AppendLayer(int layer, Traits traits, ModelLayout& layout) {
  const ModelDescription& model = layout.model;
  const ExpertsDescription& experts = model.layers[static_cast<size_t>(layer)].experts;
  const auto append = [&](StageKind stage, TileLayout tile) {
    layout.stages.push_back({stage, layer, layout.tile_count()});
    layout.tiles.push_back(std::move(tile));
  };
  if (experts.count == 0) {
    append(StageKind::kLayer,
           LayerTile(model, layer, TileKind::kLayer).Attention().FeedForward().Build(traits));
    return;
  }
  append(StageKind::kAttention,
         LayerTile(model, layer, TileKind::kAttention).Attention().Build(traits));
  append(StageKind::kExperts, LayerTile(model, layer, TileKind::kRouter).Router().Build(traits));
  for (int64_t first = 0; first < experts.count; first += experts.experts_per_tile) {
    const int64_t count = std::min(experts.experts_per_tile, experts.count - first);
    layout.tiles.push_back(
        LayerTile(model, layer, TileKind::kExperts).Experts(first, count).Build(traits));
    ++layout.stages.back().expert_tiles;
  }
  if (!model.layers[static_cast<size_t>(layer)].joins()) return;
  layout.stages.back().joins = true;
  layout.tiles.push_back(LayerTile(model, layer, TileKind::kJoin).Join().Build(traits));
}

}  // namespace

ModelLayout BuildModelLayout(const ModelDescription& model) {
  return BuildModelLayout(model, [](const std::string&) { return TensorTraits(); });
}

ModelLayout BuildModelLayout(const ModelDescription& model,
                             absl::FunctionRef<TensorTraits(const std::string& name)> traits) {
  ModelLayout layout;
  layout.model = model;
  const Group table = {Role::kMatrix,
                       {{"model.embed_tokens.weight", {model.vocabulary, model.hidden}}},
                       &layout.embedding_offset};
  const Group norm = {
      Role::kNorm, {{"model.norm.weight", {model.hidden}}}, &layout.final_norm_offset};
  TileLayout embedding;
  embedding.kind = model.tied_embeddings ? TileKind::kTiedEmbedding : TileKind::kEmbedding;
  Place(model.tied_embeddings ? std::vector{table, norm} : std::vector{table}, traits, embedding);
  layout.head_offset = layout.embedding_offset;
  layout.tiles.push_back(std::move(embedding));
  for (int layer = 0; layer < static_cast<int>(model.layer_count()); ++layer) {
    AppendLayer(layer, traits, layout);
  }
  if (!model.tied_embeddings) {
    TileLayout head;
    head.kind = TileKind::kHead;
    Place({norm,
           {Role::kMatrix,
            {{"lm_head.weight", {model.vocabulary, model.hidden}}},
            &layout.head_offset}},
          traits, head);
    layout.tiles.push_back(std::move(head));
    layout.head_tile = layout.tile_count() - 1;
  }
  for (TileLayout& tile : layout.tiles) {
    layout.parameters += tile.parameters;
    for (TensorSpec& tensor : tile.tensors) {
      if (model.wrapper.is_there()) tensor.wrapped_name = model.wrapper.OnDisk(tensor.name);
      if (!tensor.frozen) layout.trained_parameters += tensor.elements;
    }
    layout.tile_elements_max = std::max(layout.tile_elements_max, tile.elements);
  }
  return layout;
}

absl::InlinedVector<ElementRange, 2> TrainedRanges(const TileLayout& tile, ElementRange range) {
  absl::InlinedVector<ElementRange, 2> ranges;
  for (const TensorSpec& tensor : tile.tensors) {
    const ElementRange part{std::max(range.begin, tensor.offset),
                            std::min(range.end, tensor.offset + tensor.elements)};
    if (tensor.frozen || part.begin >= part.end) continue;
    if (!ranges.empty() && ranges.back().end == part.begin) {
      ranges.back().end = part.end;
    } else {
      ranges.push_back(part);
    }
  }
  return ranges;
}

bool IsTrained(const TileLayout& tile, int64_t offset) {
  return std::any_of(tile.tensors.begin(), tile.tensors.end(), [&](const TensorSpec& tensor) {
    return tensor.offset == offset && !tensor.frozen;
  });
}

int64_t ParameterCount(const ModelDescription& model) { return BuildModelLayout(model).parameters; }

void ForEachTensor(const ModelLayout& layout,
                   absl::FunctionRef<void(int tile, const TensorSpec& tensor)> visit) {
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    for (const TensorSpec& tensor : layout.tiles[tile].tensors) visit(tile, tensor);
  }
}

}  // namespace megatrain

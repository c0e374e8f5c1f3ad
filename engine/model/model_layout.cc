#include "engine/model/model_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A bias is initialised to 0; transformers initialises that of a router like a matrix. A plain norm
// multiplies by its weight in every model. kDecay and kTimeStep are a delta net's A_log and
// dt_bias. Scales decay as matrices do, as in transformers' Trainer; kConstant is one that is never
// trained.
enum class Role {
  kMatrix,
  kNorm,
  kPlainNorm,
  kBias,
  kRouterBias,
  kScale,
  kDecay,
  kTimeStep,
  kBuffer,
  kConstant
};

bool IsNeverTrained(Role role) { return role == Role::kBuffer || role == Role::kConstant; }

// By the names of tensors, as transformers' Trainer does it.
bool Decays(Role role) {
  return role == Role::kMatrix || role == Role::kScale || role == Role::kDecay;
}

Initial InitialOf(Role role, bool one_plus_norms) {
  switch (role) {
    case Role::kMatrix:
    case Role::kRouterBias:
      break;
    case Role::kNorm:
      return one_plus_norms ? Initial::kZero : Initial::kOne;
    case Role::kPlainNorm:
    case Role::kScale:
    case Role::kTimeStep:
    case Role::kConstant:
      return Initial::kOne;
    case Role::kBias:
    case Role::kBuffer:
      return Initial::kZero;
    case Role::kDecay:
      return Initial::kLogUniform;
  }
  return Initial::kNormal;
}

struct Part {
  std::string name;
  std::vector<int64_t> shape;
  // Of the first dimension, if it is a part of a stacked tensor.
  int64_t begin = 0, count = 0;
  RowGroups rows = {};
  bool of_columns = false;  // begin and count are of the second dimension
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
void Append(const Group& group, Traits traits, bool one_plus_norms, TileLayout& tile) {
  Align(tile);
  *group.offset = tile.elements;
  for (const Part& part : group.parts) {
    TensorSpec tensor;
    tensor.name = part.name;
    tensor.shape = part.shape;
    tensor.offset = tile.elements;
    tensor.elements = tensor.whole_elements();
    if (part.of_columns) {
      tensor.source_begin = part.begin;
      tensor.columns = part.count;
      tensor.elements = part.shape.front() * part.count;
    } else if (part.count > 0) {
      const int64_t row = tensor.elements / part.shape.front();
      tensor.source_begin = part.begin * row;
      tensor.elements = part.count * row;
    }
    tensor.rows = part.rows;
    tensor.decays = Decays(group.role);
    tensor.initial = InitialOf(group.role, one_plus_norms);
    tensor.is_buffer = group.role == Role::kBuffer;
    tensor.is_constant = group.role == Role::kConstant;
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
void Place(std::vector<Group> groups, Traits traits, bool one_plus_norms, TileLayout& tile) {
  const auto frozen = std::stable_partition(
      groups.begin(), groups.end(), [&](const Group& group) { return !IsFrozen(group, traits); });
  const auto append = [&](const Group& group) { Append(group, traits, one_plus_norms, tile); };
  std::for_each(groups.begin(), frozen, append);
  Align(tile);
  const int64_t state_elements = tile.elements;
  std::for_each(frozen, groups.end(), append);
  Align(tile);
  tile.stateless_elements = tile.elements - state_elements;
}

// Collects the groups of a decoder layer's tile.
class LayerTile {
 public:
  LayerTile(const ModelDescription& model, int layer, TileKind kind)
      : d_(model.layers[static_cast<size_t>(layer)]),
        hidden_(model.hidden),
        layers_(model.layer_count()),
        one_plus_norms_(model.one_plus_norms),
        prefix_(absl::StrCat("model.layers.", layer, ".")) {
    tile_.kind = kind;
    tile_.layer = layer;
  }

  LayerTile& FirstHalf() {
    Norm(d_.attention_norms.norm, hidden_, &o_.attention_norm);
    switch (d_.attention_kind()) {
      case AttentionKind::kSoftmax:
        Attention();
        break;
      case AttentionKind::kLatent:
        Latents();
        break;
      case AttentionKind::kDeltaNet:
        DeltaNet();
        break;
    }
    Norm(d_.attention_norms.post_norm, hidden_, &o_.attention_post_norm);
    return *this;
  }
  LayerTile& FeedForward() {
    Norm(d_.feed_forward_norms.norm, hidden_, &o_.feed_forward_norm);
    GatedUnit("mlp", d_.feed_forward.intermediate, d_.feed_forward.fused_gate_up);
    Norm(d_.feed_forward_norms.post_norm, hidden_, &o_.feed_forward_post_norm);
    PerLayerInput();
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
    if (e.shared_gate) Matrix({{e.shared_name + "_gate.weight", {1, hidden_}}}, &o_.shared_gate);
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
    Place(std::move(groups_), traits, one_plus_norms_, tile_);
    return std::move(tile_);
  }

 private:
  // The rows of both latents lie side by side.
  void Latents() {
    const AttentionDescription& a = d_.attention;
    const LatentDescription& latent = a.latent;
    const bool has_query_latent = latent.query_rank > 0;
    const std::string q = has_query_latent ? "self_attn.q_a_proj" : "self_attn.q_proj";
    const std::string kv = "self_attn.kv_a_proj_with_mqa";
    const int64_t kv_rows = latent.key_value_rank + latent.rotary_dim;
    const int64_t q_rows = d_.projected_width() - kv_rows;
    Matrix({{q + ".weight", {q_rows, hidden_}}, {kv + ".weight", {kv_rows, hidden_}}},
           &o_.in_projection);
    if (a.qkv_bias) {
      Bias({{q + ".bias", {q_rows}}, {kv + ".bias", {kv_rows}}}, &o_.in_projection_bias);
    }
    if (has_query_latent) {
      Norm("self_attn.q_a_layernorm", latent.query_rank, &o_.q_a_norm);
      Matrix({{"self_attn.q_b_proj.weight", {a.q_width(), latent.query_rank}}}, &o_.q_b);
    }
    Norm("self_attn.kv_a_layernorm", latent.key_value_rank, &o_.kv_a_norm);
    Matrix({{"self_attn.kv_b_proj.weight", {a.expanded_width(), latent.key_value_rank}}}, &o_.kv_b);
    AttentionOutput();
  }

  void Attention() {
    const AttentionDescription& a = d_.attention;
    const int64_t q = a.q_width(), kv = a.kv_width();
    if (a.fused_qkv) {
      Matrix({{"self_attn.qkv_proj.weight", {a.projected_width(), hidden_}}}, &o_.in_projection);
      if (a.qkv_bias) {
        Bias({{"self_attn.qkv_proj.bias", {a.projected_width()}}}, &o_.in_projection_bias);
      }
    } else {
      RowGroups q_rows;
      if (a.output_gate) q_rows = {a.heads, {a.head_dim, a.head_dim}};
      const int64_t q_and_gate = q + a.gate_width();
      std::vector<Part> matrices = {
          {"self_attn.q_proj.weight", {q_and_gate, hidden_}, 0, 0, q_rows}};
      std::vector<Part> biases = {{"self_attn.q_proj.bias", {q_and_gate}, 0, 0, q_rows}};
      const auto add = [&](const std::string& name) {
        matrices.push_back({name + ".weight", {kv, hidden_}});
        biases.push_back({name + ".bias", {kv}});
      };
      if (a.projects_keys) add("self_attn.k_proj");
      if (a.projects_keys && !a.values_are_keys) add("self_attn.v_proj");
      Matrix(std::move(matrices), &o_.in_projection);
      if (a.qkv_bias) Bias(std::move(biases), &o_.in_projection_bias);
    }
    if (a.qk_norm != QkNorm::kNone) {
      const bool full = a.qk_norm == QkNorm::kFull;
      Norm("self_attn.q_norm", full ? q : a.head_dim, &o_.q_norm);
      if (a.projects_keys) Norm("self_attn.k_norm", full ? kv : a.head_dim, &o_.k_norm);
    }
    // Initialised like a matrix and decaying, as in transformers.
    if (a.sinks) Matrix({{"self_attn.sinks", {a.heads}}}, &o_.sinks);
    AttentionOutput();
  }

  void AttentionOutput() {
    Matrix({{"self_attn.o_proj.weight", {hidden_, d_.mixed_width()}}}, &o_.o);
    if (d_.attention.output_bias) Bias({{"self_attn.o_proj.bias", {hidden_}}}, &o_.o_bias);
  }

  void PerLayerInput() {
    const auto [width, vocabulary, activation] = d_.per_layer_input;
    if (width == 0) return;
    const int64_t begin = tile_.layer * width, all = layers_ * width;
    groups_.push_back({Role::kMatrix,
                       {{.name = "model.embed_tokens_per_layer.weight",
                         .shape = {vocabulary, all},
                         .begin = begin,
                         .count = width,
                         .of_columns = true}},
                       &o_.per_layer_table});
    groups_.push_back({Role::kMatrix,
                       {{.name = "model.per_layer_model_projection.weight",
                         .shape = {all, hidden_},
                         .begin = begin,
                         .count = width}},
                       &o_.per_layer_model_projection});
    Matrix({{"per_layer_input_gate.weight", {width, hidden_}}}, &o_.per_layer_gate);
    Matrix({{"per_layer_projection.weight", {hidden_, width}}}, &o_.per_layer_out);
    Norm("post_per_layer_input_norm", hidden_, &o_.per_layer_norm);
  }

  // In either layout on disk the tile's rows are those of Q, K, V, Z, b and a.
  void DeltaNet() {
    const DeltaNetDescription& d = d_.delta_net;
    const int64_t values = d.values_width(), heads = d.value_heads;
    if (d.tensors == DeltaTensors::kByKeyHead) {
      const int64_t group_heads = heads / d.key_heads, group_values = group_heads * d.value_dim;
      Matrix({{"linear_attn.in_proj_qkvz.weight",
               {d.channels() + values, hidden_},
               0,
               0,
               {d.key_heads, {d.key_dim, d.key_dim, group_values, group_values}}},
              {"linear_attn.in_proj_ba.weight",
               {2 * heads, hidden_},
               0,
               0,
               {d.key_heads, {group_heads, group_heads}}}},
             &o_.in_projection);
    } else {
      Matrix({{"linear_attn.in_proj_qkv.weight", {d.channels(), hidden_}},
              {"linear_attn.in_proj_z.weight", {values, hidden_}},
              {"linear_attn.in_proj_b.weight", {heads, hidden_}},
              {"linear_attn.in_proj_a.weight", {heads, hidden_}}},
             &o_.in_projection);
    }
    Matrix({{"linear_attn.conv1d.weight", {d.channels(), 1, d.kernel}}}, &o_.conv);
    Add(Role::kDecay, {{"linear_attn.A_log", {heads}}}, &o_.a_log);
    Add(Role::kTimeStep, {{"linear_attn.dt_bias", {heads}}}, &o_.dt_bias);
    Add(Role::kPlainNorm, {{"linear_attn.norm.weight", {d.value_dim}}}, &o_.gated_norm);
    Matrix({{"linear_attn.out_proj.weight", {hidden_, values}}}, &o_.o);
  }

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
  const int64_t layers_;
  const bool one_plus_norms_;
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
           LayerTile(model, layer, TileKind::kLayer).FirstHalf().FeedForward().Build(traits));
    return;
  }
  append(StageKind::kAttention,
         LayerTile(model, layer, TileKind::kAttention).FirstHalf().Build(traits));
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
  std::vector<Group> groups = {table};
  if (model.tied_embeddings) groups.push_back(norm);
  if (const int64_t width = model.layers.front().per_layer_input.width; width > 0) {
    groups.push_back({Role::kNorm,
                      {{"model.per_layer_projection_norm.weight", {width}}},
                      &layout.per_layer_norm_offset});
  }
  Place(std::move(groups), traits, model.one_plus_norms, embedding);
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
          traits, model.one_plus_norms, head);
    layout.tiles.push_back(std::move(head));
    layout.head_tile = layout.tile_count() - 1;
  }
  for (TileLayout& tile : layout.tiles) {
    layout.parameters += tile.parameters;
    for (TensorSpec& tensor : tile.tensors) {
      if (std::string name = model.wrapper.OnDisk(tensor.name); name != tensor.name) {
        tensor.wrapped_name = std::move(name);
      }
      if (!tensor.frozen) layout.trained_parameters += tensor.elements;
    }
    layout.tile_elements_max = std::max(layout.tile_elements_max, tile.elements);
  }
  return layout;
}

std::vector<TensorRun> RunsOf(const TensorSpec& tensor) {
  if (tensor.columns > 0) {
    std::vector<TensorRun> runs;
    for (int64_t row = 0; row < tensor.shape.front(); ++row) {
      runs.push_back(
          {tensor.source_begin + row * tensor.shape.back(), row * tensor.columns, tensor.columns});
    }
    return runs;
  }
  const RowGroups& rows = tensor.rows;
  if (rows.part_rows.empty()) return {{tensor.source_begin, 0, tensor.elements}};
  const int64_t row = tensor.elements / tensor.shape.front();
  std::vector<TensorRun> runs;
  int64_t source = tensor.source_begin;
  for (int64_t group = 0; group < rows.groups; ++group) {
    int64_t place = 0;  // of the first group's part
    for (const int64_t part_rows : rows.part_rows) {
      const int64_t elements = part_rows * row;
      runs.push_back({source, place + group * elements, elements});
      source += elements;
      place += rows.groups * elements;
    }
  }
  return runs;
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

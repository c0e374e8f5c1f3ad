#include "engine/model/model_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

enum class Role { kMatrix, kNorm, kBias };

struct Part {
  std::string name;
  std::vector<int64_t> shape;
};

// Tensors that lie side by side, because one product takes them all.
struct Group {
  Role role;
  std::vector<Part> parts;
  int64_t* offset;  // receives the group's place
};

using Traits = absl::FunctionRef<TensorTraits(const std::string& name)>;

bool IsFrozen(const Group& group, Traits traits) {
  return std::all_of(group.parts.begin(), group.parts.end(),
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
    tensor.elements = std::accumulate(part.shape.begin(), part.shape.end(), int64_t{1},
                                      [](int64_t a, int64_t b) { return a * b; });
    tensor.decays = group.role == Role::kMatrix;
    tensor.is_norm = group.role == Role::kNorm;
    tensor.is_bias = group.role == Role::kBias;
    const TensorTraits chosen = traits(part.name);
    tensor.frozen = chosen.frozen;
    tensor.rates = chosen.rates;
    tile.elements += tensor.elements;
    tile.parameters += tensor.elements;
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

TileLayout BuildLayerTile(const ModelDescription& model, int64_t layer, Traits traits) {
  const LayerDescription& d = model.layers[static_cast<size_t>(layer)];
  const AttentionDescription& a = d.attention;
  const std::string p = absl::StrCat("model.layers.", layer, ".");
  const int64_t q = a.q_width(), kv = a.kv_width();
  TileLayout tile;
  tile.kind = TileKind::kLayer;
  tile.layer = layer;
  LayerOffsets& o = tile.offsets;
  std::vector<Group> groups;
  const auto norm = [&](const std::string& name, int64_t width, int64_t* offset) {
    if (!name.empty()) {
      groups.push_back({Role::kNorm, {{absl::StrCat(p, name, ".weight"), {width}}}, offset});
    }
  };
  const auto matrix = [&](std::vector<Part> parts, int64_t* offset) {
    groups.push_back({Role::kMatrix, std::move(parts), offset});
  };
  const auto bias = [&](std::vector<Part> parts, int64_t* offset) {
    groups.push_back({Role::kBias, std::move(parts), offset});
  };

  norm(d.attention_norms.norm, model.hidden, &o.attention_norm);
  if (a.fused_qkv) {
    matrix({{p + "self_attn.qkv_proj.weight", {a.qkv_width(), model.hidden}}}, &o.qkv);
    if (a.qkv_bias) bias({{p + "self_attn.qkv_proj.bias", {a.qkv_width()}}}, &o.qkv_bias);
  } else {
    matrix({{p + "self_attn.q_proj.weight", {q, model.hidden}},
            {p + "self_attn.k_proj.weight", {kv, model.hidden}},
            {p + "self_attn.v_proj.weight", {kv, model.hidden}}},
           &o.qkv);
    if (a.qkv_bias) {
      bias({{p + "self_attn.q_proj.bias", {q}},
            {p + "self_attn.k_proj.bias", {kv}},
            {p + "self_attn.v_proj.bias", {kv}}},
           &o.qkv_bias);
    }
  }
  if (a.qk_norm != QkNorm::kNone) {
    const bool full = a.qk_norm == QkNorm::kFull;
    norm("self_attn.q_norm", full ? q : a.head_dim, &o.q_norm);
    norm("self_attn.k_norm", full ? kv : a.head_dim, &o.k_norm);
  }
  matrix({{p + "self_attn.o_proj.weight", {model.hidden, q}}}, &o.o);
  if (a.output_bias) bias({{p + "self_attn.o_proj.bias", {model.hidden}}}, &o.o_bias);
  norm(d.attention_norms.post_norm, model.hidden, &o.attention_post_norm);

  const int64_t intermediate = d.feed_forward.intermediate;
  norm(d.feed_forward_norms.norm, model.hidden, &o.feed_forward_norm);
  if (d.feed_forward.fused_gate_up) {
    matrix({{p + "mlp.gate_up_proj.weight", {2 * intermediate, model.hidden}}}, &o.gate_up);
  } else {
    matrix({{p + "mlp.gate_proj.weight", {intermediate, model.hidden}},
            {p + "mlp.up_proj.weight", {intermediate, model.hidden}}},
           &o.gate_up);
  }
  matrix({{p + "mlp.down_proj.weight", {model.hidden, intermediate}}}, &o.down);
  norm(d.feed_forward_norms.post_norm, model.hidden, &o.feed_forward_post_norm);
  Place(std::move(groups), traits, tile);
  return tile;
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
  for (int64_t layer = 0; layer < model.layer_count(); ++layer) {
    layout.tiles.push_back(BuildLayerTile(model, layer, traits));
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
  for (const TileLayout& tile : layout.tiles) {
    layout.parameters += tile.parameters;
    for (const TensorSpec& tensor : tile.tensors) {
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

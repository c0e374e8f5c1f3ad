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

TileLayout BuildLayerTile(const ModelConfig& c, int64_t layer, Traits traits) {
  const std::string p = absl::StrCat("model.layers.", layer, ".");
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  TileLayout tile;
  tile.kind = TileKind::kLayer;
  tile.layer = layer;
  LayerOffsets& o = tile.offsets;
  std::vector<Group> groups = {
      {Role::kNorm, {{p + "input_layernorm.weight", {c.hidden}}}, &o.input_norm},
      {Role::kMatrix,
       {{p + "self_attn.q_proj.weight", {q, c.hidden}},
        {p + "self_attn.k_proj.weight", {kv, c.hidden}},
        {p + "self_attn.v_proj.weight", {kv, c.hidden}}},
       &o.qkv}};
  if (c.qkv_bias) {
    groups.push_back({Role::kBias,
                      {{p + "self_attn.q_proj.bias", {q}},
                       {p + "self_attn.k_proj.bias", {kv}},
                       {p + "self_attn.v_proj.bias", {kv}}},
                      &o.qkv_bias});
  }
  if (c.qk_norm) {
    groups.push_back({Role::kNorm, {{p + "self_attn.q_norm.weight", {c.head_dim}}}, &o.q_norm});
    groups.push_back({Role::kNorm, {{p + "self_attn.k_norm.weight", {c.head_dim}}}, &o.k_norm});
  }
  groups.push_back({Role::kMatrix, {{p + "self_attn.o_proj.weight", {c.hidden, q}}}, &o.o});
  groups.push_back(
      {Role::kNorm, {{p + "post_attention_layernorm.weight", {c.hidden}}}, &o.post_norm});
  groups.push_back({Role::kMatrix,
                    {{p + "mlp.gate_proj.weight", {c.intermediate, c.hidden}},
                     {p + "mlp.up_proj.weight", {c.intermediate, c.hidden}}},
                    &o.gate_up});
  groups.push_back(
      {Role::kMatrix, {{p + "mlp.down_proj.weight", {c.hidden, c.intermediate}}}, &o.down});
  Place(std::move(groups), traits, tile);
  return tile;
}

}  // namespace

std::string ModelFamilyName(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "llama";
    case ModelFamily::kQwen2:
      return "qwen2";
    case ModelFamily::kQwen3:
      return "qwen3";
  }
  return "unknown";
}

ModelLayout BuildModelLayout(const ModelConfig& config) {
  return BuildModelLayout(config, [](const std::string&) { return TensorTraits(); });
}

ModelLayout BuildModelLayout(const ModelConfig& config,
                             absl::FunctionRef<TensorTraits(const std::string& name)> traits) {
  ModelLayout layout;
  layout.config = config;
  const Group table = {Role::kMatrix,
                       {{"model.embed_tokens.weight", {config.vocabulary, config.hidden}}},
                       &layout.embedding_offset};
  const Group norm = {
      Role::kNorm, {{"model.norm.weight", {config.hidden}}}, &layout.final_norm_offset};
  TileLayout embedding;
  embedding.kind = config.tied_embeddings ? TileKind::kTiedEmbedding : TileKind::kEmbedding;
  Place(config.tied_embeddings ? std::vector{table, norm} : std::vector{table}, traits, embedding);
  layout.head_offset = layout.embedding_offset;
  layout.tiles.push_back(std::move(embedding));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    layout.tiles.push_back(BuildLayerTile(config, layer, traits));
  }
  if (!config.tied_embeddings) {
    TileLayout head;
    head.kind = TileKind::kHead;
    Place({norm,
           {Role::kMatrix,
            {{"lm_head.weight", {config.vocabulary, config.hidden}}},
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

int64_t ParameterCount(const ModelConfig& config) { return BuildModelLayout(config).parameters; }

void ForEachTensor(const ModelLayout& layout,
                   absl::FunctionRef<void(int tile, const TensorSpec& tensor)> visit) {
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    for (const TensorSpec& tensor : layout.tiles[tile].tensors) visit(tile, tensor);
  }
}

}  // namespace megatrain

#include "engine/model/model_layout.h"

#include <algorithm>
#include <initializer_list>
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

// Lays tensors of one group side by side, the group's start aligned. Returns the group's offset.
int64_t AddGroup(TileLayout& tile, Role role, std::initializer_list<Part> parts) {
  tile.elements = RoundUp(tile.elements, kTensorAlignmentElements);
  const int64_t start = tile.elements;
  for (const Part& part : parts) {
    TensorSpec tensor;
    tensor.name = part.name;
    tensor.shape = part.shape;
    tensor.offset = tile.elements;
    tensor.elements = std::accumulate(part.shape.begin(), part.shape.end(), int64_t{1},
                                      [](int64_t a, int64_t b) { return a * b; });
    tensor.decays = role == Role::kMatrix;
    tensor.is_norm = role == Role::kNorm;
    tensor.is_bias = role == Role::kBias;
    tile.elements += tensor.elements;
    tile.parameters += tensor.elements;
    tile.tensors.push_back(std::move(tensor));
  }
  return start;
}

void Close(TileLayout& tile) { tile.elements = RoundUp(tile.elements, kTensorAlignmentElements); }

TileLayout BuildLayerTile(const ModelConfig& c, int64_t layer, LayerOffsets& offsets) {
  const std::string p = absl::StrCat("model.layers.", layer, ".");
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  TileLayout tile;
  tile.kind = TileKind::kLayer;
  tile.layer = layer;
  offsets.input_norm = AddGroup(tile, Role::kNorm, {{p + "input_layernorm.weight", {c.hidden}}});
  offsets.qkv = AddGroup(tile, Role::kMatrix,
                         {{p + "self_attn.q_proj.weight", {q, c.hidden}},
                          {p + "self_attn.k_proj.weight", {kv, c.hidden}},
                          {p + "self_attn.v_proj.weight", {kv, c.hidden}}});
  if (c.qkv_bias) {
    offsets.qkv_bias = AddGroup(tile, Role::kBias,
                                {{p + "self_attn.q_proj.bias", {q}},
                                 {p + "self_attn.k_proj.bias", {kv}},
                                 {p + "self_attn.v_proj.bias", {kv}}});
  }
  if (c.qk_norm) {
    offsets.q_norm = AddGroup(tile, Role::kNorm, {{p + "self_attn.q_norm.weight", {c.head_dim}}});
    offsets.k_norm = AddGroup(tile, Role::kNorm, {{p + "self_attn.k_norm.weight", {c.head_dim}}});
  }
  offsets.o = AddGroup(tile, Role::kMatrix, {{p + "self_attn.o_proj.weight", {c.hidden, q}}});
  offsets.post_norm =
      AddGroup(tile, Role::kNorm, {{p + "post_attention_layernorm.weight", {c.hidden}}});
  offsets.gate_up = AddGroup(tile, Role::kMatrix,
                             {{p + "mlp.gate_proj.weight", {c.intermediate, c.hidden}},
                              {p + "mlp.up_proj.weight", {c.intermediate, c.hidden}}});
  offsets.down =
      AddGroup(tile, Role::kMatrix, {{p + "mlp.down_proj.weight", {c.hidden, c.intermediate}}});
  Close(tile);
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
  ModelLayout layout;
  layout.config = config;
  TileLayout embedding;
  embedding.kind = config.tied_embeddings ? TileKind::kTiedEmbedding : TileKind::kEmbedding;
  layout.embedding_offset =
      AddGroup(embedding, Role::kMatrix,
               {{"model.embed_tokens.weight", {config.vocabulary, config.hidden}}});
  if (config.tied_embeddings) {
    layout.head_offset = layout.embedding_offset;
    layout.final_norm_offset =
        AddGroup(embedding, Role::kNorm, {{"model.norm.weight", {config.hidden}}});
  }
  Close(embedding);
  layout.tiles.push_back(std::move(embedding));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    layout.tiles.push_back(BuildLayerTile(config, layer, layout.layer_offsets));
  }
  if (!config.tied_embeddings) {
    TileLayout head;
    head.kind = TileKind::kHead;
    layout.final_norm_offset =
        AddGroup(head, Role::kNorm, {{"model.norm.weight", {config.hidden}}});
    layout.head_offset =
        AddGroup(head, Role::kMatrix, {{"lm_head.weight", {config.vocabulary, config.hidden}}});
    Close(head);
    layout.tiles.push_back(std::move(head));
    layout.head_tile = layout.tile_count() - 1;
  }
  for (const TileLayout& tile : layout.tiles) {
    layout.parameters += tile.parameters;
    layout.tile_elements_max = std::max(layout.tile_elements_max, tile.elements);
  }
  return layout;
}

int64_t ParameterCount(const ModelConfig& config) { return BuildModelLayout(config).parameters; }

void ForEachTensor(const ModelLayout& layout,
                   absl::FunctionRef<void(int tile, const TensorSpec& tensor)> visit) {
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    for (const TensorSpec& tensor : layout.tiles[tile].tensors) visit(tile, tensor);
  }
}

}  // namespace megatrain

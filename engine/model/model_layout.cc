#include "engine/model/model_layout.h"

#include <algorithm>
#include <utility>

#include "engine/model/tensor_roles.h"

namespace megatrain {
namespace {

// Appends the layer's tiles and stages.
void AppendLayer(int layer, TraitsOf traits, ModelLayout& layout) {
  const ModelDescription& model = layout.model;
  const ExpertsDescription& experts = model.layers[static_cast<size_t>(layer)].experts;
  const auto append = [&](StageKind stage, TileLayout tile) {
    layout.stages.push_back({stage, layer, layout.tile_count()});
    layout.tiles.push_back(std::move(tile));
  };
  if (experts.count == 0) {
    append(StageKind::kLayer, LayerTileLayout(model, layer, TileKind::kLayer, traits));
    return;
  }
  append(StageKind::kAttention, LayerTileLayout(model, layer, TileKind::kAttention, traits));
  append(StageKind::kExperts, LayerTileLayout(model, layer, TileKind::kRouter, traits));
  for (int64_t first = 0; first < experts.count; first += experts.experts_per_tile) {
    const int64_t count = std::min(experts.experts_per_tile, experts.count - first);
    layout.tiles.push_back(LayerTileLayout(model, layer, TileKind::kExperts, traits, first, count));
    ++layout.stages.back().expert_tiles;
  }
  if (!model.layers[static_cast<size_t>(layer)].joins()) return;
  layout.stages.back().joins = true;
  layout.tiles.push_back(LayerTileLayout(model, layer, TileKind::kJoin, traits));
}

}  // namespace

ModelLayout BuildModelLayout(const ModelDescription& model) {
  return BuildModelLayout(model, [](const std::string&) { return TensorTraits(); });
}

ModelLayout BuildModelLayout(const ModelDescription& model,
                             absl::FunctionRef<TensorTraits(const std::string& name)> traits) {
  ModelLayout layout;
  layout.model = model;
  const TensorGroup table = {Role::kMatrix,
                             {{kEmbeddingTensorName, {model.vocabulary, model.hidden}}},
                             &layout.embedding_offset};
  const TensorGroup norm = {
      Role::kNorm, {{"model.norm.weight", {model.hidden}}}, &layout.final_norm_offset};
  TileLayout embedding;
  embedding.kind = model.tied_embeddings ? TileKind::kTiedEmbedding : TileKind::kEmbedding;
  std::vector<TensorGroup> groups = {table};
  if (model.tied_embeddings) groups.push_back(norm);
  if (const int64_t width = model.layers.front().per_layer_input.width; width > 0) {
    groups.push_back({Role::kNorm,
                      {{"model.per_layer_projection_norm.weight", {width}}},
                      &layout.per_layer_norm_offset});
  }
  PlaceGroups(std::move(groups), traits, model.one_plus_norms, embedding);
  layout.head_offset = layout.embedding_offset;
  layout.tiles.push_back(std::move(embedding));
  for (int layer = 0; layer < static_cast<int>(model.layer_count()); ++layer) {
    AppendLayer(layer, traits, layout);
  }
  if (!model.tied_embeddings) {
    TileLayout head;
    head.kind = TileKind::kHead;
    PlaceGroups({norm,
                 {Role::kMatrix,
                  {{kHeadTensorName, {model.vocabulary, model.hidden}}},
                  &layout.head_offset}},
                traits, model.one_plus_norms, head);
    layout.tiles.push_back(std::move(head));
    layout.head_tile = layout.tile_count() - 1;
  }
  for (TileLayout& tile : layout.tiles) {
    layout.parameters += tile.parameters;
    for (TensorSpec& tensor : tile.tensors) {
      if (std::string name = model.wrapper.OnDisk(tensor.name); name != tensor.name) {
        tensor.other_name_on_disk = std::move(name);
      }
      if (!tensor.frozen) layout.trained_parameters += tensor.elements;
    }
    layout.tile_elements_max = std::max(layout.tile_elements_max, tile.elements);
  }
  return layout;
}

std::vector<TensorRun> RunsOf(const TensorSpec& tensor) {
  return RunsOf(tensor, {0, tensor.elements});
}

std::vector<TensorRun> RunsOf(const TensorSpec& tensor, ElementRange part) {
  if (tensor.columns > 0) {
    std::vector<TensorRun> runs;
    for (int64_t row = part.begin / tensor.columns; row < part.end / tensor.columns; ++row) {
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

void ForEachTensor(const ModelLayout& layout,
                   absl::FunctionRef<void(int tile, const TensorSpec& tensor)> visit) {
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    for (const TensorSpec& tensor : layout.tiles[tile].tensors) visit(tile, tensor);
  }
}

}  // namespace megatrain

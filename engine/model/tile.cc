#include "engine/model/tile.h"

#include <algorithm>
#include <cstring>

namespace megatrain {

Tile MakeTile(const TileLayout* layout, DType weight_dtype, void* block, const HeldElements& held) {
  Tile tile;
  tile.layout = layout;
  tile.weight_dtype = weight_dtype;
  tile.held = held;
  tile.weights = block;
  char* bytes = static_cast<char*>(block) + tile.weight_bytes();
  if (weight_dtype == DType::kBF16) {
    tile.remainder = reinterpret_cast<int16_t*>(bytes);
    bytes += held.state.elements() * int64_t{sizeof(int16_t)};
  }
  tile.exp_avg = reinterpret_cast<float*>(bytes);
  tile.exp_avg_sq = tile.exp_avg + held.state.elements();
  return tile;
}

Tile MakeWeightsTile(const TileLayout* layout, DType weight_dtype, void* weights) {
  Tile tile;
  tile.layout = layout;
  tile.weight_dtype = weight_dtype;
  tile.held = AllElements(*layout);
  tile.weights = weights;
  return tile;
}

namespace {

// The elements of a tile that one of the tensor takes. One of a buffer, FP32, takes two of BF16.
int64_t ElementsInTile(const TensorSpec& tensor, DType weight_dtype) {
  return DTypeBytes(WeightDType(tensor, weight_dtype)) / DTypeBytes(weight_dtype);
}

}  // namespace

// Parts begin at multiples of kUpdateAlignment, and so with a whole element of a buffer.
ElementRange HeldOf(const TileLayout& layout, DType weight_dtype, const HeldElements& held,
                    const TensorSpec& tensor) {
  const ElementRange& there = tensor.offset < layout.state_elements() ? held.state : held.stateless;
  const int64_t size = ElementsInTile(tensor, weight_dtype);
  const auto index = [&](int64_t element) {
    return std::clamp<int64_t>((element - tensor.offset) / size, 0, tensor.elements);
  };
  return {index(there.begin), index(there.end)};
}

std::vector<TensorRun> HeldRunsOf(const Tile& tile, const TensorSpec& tensor) {
  const ElementRange held = HeldOf(*tile.layout, tile.weight_dtype, tile.held, tensor);
  std::vector<TensorRun> runs;
  for (const TensorRun& run : RunsOf(tensor)) {
    const ElementRange part = Intersection(held, {run.place, run.place + run.elements});
    if (part.elements() == 0) continue;
    runs.push_back({run.source + part.begin - run.place, part.begin, part.elements()});
  }
  return runs;
}

Tile TensorTile(const Tile& tile, const TensorSpec& tensor) {
  Tile place = tile;
  const ElementRange held = HeldOf(*tile.layout, tile.weight_dtype, tile.held, tensor);
  place.held = {held, {}};
  place.weight_dtype = WeightDType(tensor, tile.weight_dtype);
  // An element that the tile has, also if it has none of the tensor's.
  const int64_t first =
      held.elements() == 0 ? tile.held.state.begin
                           : tensor.offset + held.begin * ElementsInTile(tensor, tile.weight_dtype);
  place.weights = tile.WeightsAt(first);
  place.remainder = tensor.frozen ? nullptr : tile.RemainderAt(first);
  place.exp_avg = tensor.frozen ? nullptr : tile.ExpAvgAt(first);
  place.exp_avg_sq = tensor.frozen ? nullptr : tile.ExpAvgSqAt(first);
  return place;
}

void ZeroPadding(const Tile& tile) {
  const TileLayout& layout = *tile.layout;
  const auto zero_weights = [&](ElementRange gap) {
    for (const ElementRange& there : {tile.held.state, tile.held.stateless}) {
      const ElementRange part = Intersection(there, gap);
      if (part.elements() == 0) continue;
      std::memset(tile.WeightsAt(part.begin), 0, part.elements() * DTypeBytes(tile.weight_dtype));
    }
  };
  const auto zero_state = [&](ElementRange gap) {
    const ElementRange part = Intersection(tile.held.state, gap);
    const auto zero = [&](auto* section) {
      if (section != nullptr) std::memset(section, 0, part.elements() * int64_t{sizeof(*section)});
    };
    zero(tile.RemainderAt(part.begin));
    zero(tile.ExpAvgAt(part.begin));
    zero(tile.ExpAvgSqAt(part.begin));
  };
  int64_t weights_end = 0, state_end = 0;  // of the tensors so far
  for (const TensorSpec& tensor : layout.tensors) {
    if (tile.weights != nullptr) zero_weights({weights_end, tensor.offset});
    weights_end = tensor.offset + tensor.elements * ElementsInTile(tensor, tile.weight_dtype);
    if (tensor.frozen) continue;
    zero_state({state_end, tensor.offset});
    state_end = tensor.offset + tensor.elements;
  }
  if (tile.weights != nullptr) zero_weights({weights_end, layout.elements});
  zero_state({state_end, layout.state_elements()});
}

}  // namespace megatrain

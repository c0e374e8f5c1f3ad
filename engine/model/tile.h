// A tile's host state: four sections in one page-aligned block, each `layout->elements` long, in
// this order:
//   weights    [elements] BF16 (the upper half of the master) or FP32 (the master itself): what is
//   streamed remainder  [elements] int16, the lower half of the master; BF16 only exp_avg
//   [elements] FP32 exp_avg_sq [elements] FP32
// so 12 bytes a parameter in either precision.
#ifndef MEGATRAIN_ENGINE_MODEL_TILE_H_
#define MEGATRAIN_ENGINE_MODEL_TILE_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// Bytes of one tile's block.
constexpr int64_t TileBytes(int64_t elements, DType weight_dtype) {
  const int64_t master = weight_dtype == DType::kBF16 ? 2 + 2 : 4;
  return elements * (master + 4 + 4);
}

// Views of a tile. Does not own; valid as long as the lease of the block.
struct Tile {
  const TileLayout* layout = nullptr;
  DType weight_dtype = DType::kF32;
  void* weights = nullptr;
  int16_t* remainder = nullptr;  // null in FP32
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;

  int64_t weight_bytes() const { return layout->elements * DTypeBytes(weight_dtype); }
};

// Cuts `block` (TileBytes long) into its sections.
inline Tile MakeTile(const TileLayout* layout, DType weight_dtype, void* block) {
  const int64_t n = layout->elements;
  char* bytes = static_cast<char*>(block);
  Tile tile;
  tile.layout = layout;
  tile.weight_dtype = weight_dtype;
  tile.weights = bytes;
  bytes += n * DTypeBytes(weight_dtype);
  if (weight_dtype == DType::kBF16) {
    tile.remainder = reinterpret_cast<int16_t*>(bytes);
    bytes += n * 2;
  }
  tile.exp_avg = reinterpret_cast<float*>(bytes);
  tile.exp_avg_sq = tile.exp_avg + n;
  return tile;
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_TILE_H_

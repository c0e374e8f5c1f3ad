// The host state of a tile: four sections in one page-aligned block, each of `layout->elements`
// elements, in this order:
//   weights     BF16 (the upper half of the master) or FP32 (the master itself); streamed
//   remainder   int16, the lower half of the master; with BF16 weights only
//   exp_avg     FP32
//   exp_avg_sq  FP32
// In either precision this is 12 bytes a parameter.
#ifndef MEGATRAIN_ENGINE_MODEL_TILE_H_
#define MEGATRAIN_ENGINE_MODEL_TILE_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// Returns the bytes of one tile's block.
constexpr int64_t TileBytes(int64_t elements, DType weight_dtype) {
  const int64_t master = weight_dtype == DType::kBF16 ? 2 + 2 : 4;
  return elements * (master + 4 + 4);
}

// Pointers to the sections of a tile. Does not own them; valid as long as the lease of the block.
// Some functions allow null sections and say so.
struct Tile {
  const TileLayout* layout = nullptr;
  DType weight_dtype = DType::kF32;
  void* weights = nullptr;
  int16_t* remainder = nullptr;  // null with FP32 weights
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;

  int64_t weight_bytes() const { return layout->elements * DTypeBytes(weight_dtype); }
};

// Cuts `block`, which has TileBytes, into its sections. `layout` and `block` must outlive the
// result.
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

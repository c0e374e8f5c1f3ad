// The host state of a tile: four sections in one page-aligned block, in this order:
//   weights     BF16 (the upper half of the master) or FP32 (the master itself); streamed
//   remainder   int16, the lower half of the master; with BF16 weights only
//   exp_avg     FP32
//   exp_avg_sq  FP32
// The weights have `layout->elements` elements, the other sections layout->state_elements(). In
// either precision this is 12 bytes for a parameter with state, and that of the weight alone for
// one without (a frozen tensor's).
#ifndef MEGATRAIN_ENGINE_MODEL_TILE_H_
#define MEGATRAIN_ENGINE_MODEL_TILE_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// Returns the bytes of one tile's block. The last `stateless_elements` of its `elements` have no
// state.
constexpr int64_t TileBytes(int64_t elements, DType weight_dtype, int64_t stateless_elements = 0) {
  const int64_t remainder = weight_dtype == DType::kBF16 ? 2 : 0;
  return elements * DTypeBytes(weight_dtype) +
         (elements - stateless_elements) * (remainder + 4 + 4);
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
  const int64_t n = layout->state_elements();
  char* bytes = static_cast<char*>(block);
  Tile tile;
  tile.layout = layout;
  tile.weight_dtype = weight_dtype;
  tile.weights = bytes;
  bytes += layout->elements * DTypeBytes(weight_dtype);
  if (weight_dtype == DType::kBF16) {
    tile.remainder = reinterpret_cast<int16_t*>(bytes);
    bytes += n * 2;
  }
  tile.exp_avg = reinterpret_cast<float*>(bytes);
  tile.exp_avg_sq = tile.exp_avg + n;
  return tile;
}

// Returns `tile` without the sections that `tensor` has no part in: a frozen tensor has weights
// alone.
inline Tile SectionsOf(Tile tile, const TensorSpec& tensor) {
  if (!tensor.frozen) return tile;
  tile.remainder = nullptr;
  tile.exp_avg = tile.exp_avg_sq = nullptr;
  return tile;
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_TILE_H_

// Lists the tensors of a tile's two checkpoint files in file order. The writer and the reader share
// these lists.
//
//   model-*.safetensors      the tile's tensors under their Hugging Face names: buffers (F32), then
//                            the others (BF16 or F32) by their offset in the tile
//   optimizer-*.safetensors  NAME.exp_avg (F32) of every tensor that is not frozen, then their
//                            NAME.exp_avg_sq (F32), then with BF16 weights their NAME.remainder
//                            (I16)
// Four-byte elements come first, so that every tensor is aligned to its element size. The part that
// a tile has of a tensor has the name of HfPartName or HfColumnsName in NAME's place.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_

#include <cstdint>
#include <vector>

#include "engine/hf/safetensors.h"
#include "engine/model/tile.h"

namespace megatrain {

// A tensor in a file and its place in memory, which has the rows of some tensors in another order.
struct TilePiece {
  SafetensorsDeclaration declaration;
  struct Run {
    char* data = nullptr;  // null where the tile has no memory for it
    int64_t bytes = 0;
  };
  std::vector<Run> runs;  // in the order of the file
};

// Return the tensors of a tile's two files in file order. The pieces point into the memory of
// `tile`, which must outlive them. A run's `data` is null where the section of `tile` is.
std::vector<TilePiece> WeightsPieces(const Tile& tile);
std::vector<TilePiece> OptimizerPieces(const Tile& tile);

// Returns the declarations of `pieces`, in the same order.
std::vector<SafetensorsDeclaration> Declarations(const std::vector<TilePiece>& pieces);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_

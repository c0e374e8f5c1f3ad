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

#include "engine/checkpoint/transfer.h"
#include "engine/hf/safetensors.h"
#include "engine/model/tile.h"

namespace megatrain {

enum class TileSection { kWeights, kRemainder, kExpAvg, kExpAvgSq };

// A section of a tensor, as it lies in a file. A tile has the rows of some tensors in another
// order.
struct TilePiece {
  SafetensorsDeclaration declaration;
  const TensorSpec* tensor = nullptr;
  TileSection section = TileSection::kWeights;
  int64_t element_bytes = 0;
  std::vector<TensorRun> runs;  // in the order of the file
};

// Return the pieces of a tile's two files in file order. They point to `layout`.
std::vector<TilePiece> WeightsPieces(const TileLayout& layout, DType weight_dtype);
std::vector<TilePiece> OptimizerPieces(const TileLayout& layout, DType weight_dtype);

// Appends the places of those bytes of `piece` that `tile` has memory for. The piece begins at
// `offset` of the file.
void AppendPlaces(const TilePiece& piece, const Tile& tile, int64_t offset,
                  std::vector<FilePiece>& places);

// Returns the declarations of `pieces`, in the same order.
std::vector<SafetensorsDeclaration> Declarations(const std::vector<TilePiece>& pieces);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_

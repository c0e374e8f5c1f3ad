// Which tensors the two files of a tile hold, in file order: stated once for writer and reader.
//
//   model-*.safetensors      the tile's tensors under their HF names, BF16 or F32, by tile offset
//   optimizer-*.safetensors  NAME.exp_avg (F32) of every tensor, then NAME.exp_avg_sq (F32), then
//                            NAME.remainder (I16; with BF16 weights only): four-byte elements
//                            first, so that every tensor is aligned to its element
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_

#include <cstdint>
#include <vector>

#include "engine/hf/safetensors.h"
#include "engine/model/tile.h"

namespace megatrain {

// A tensor in a file and where it lies in memory.
struct TilePiece {
  SafetensorsDeclaration declaration;
  char* data = nullptr;  // null where the tile has no memory for it
  int64_t bytes = 0;
};

// Of a tile whose sections may be null: then only the declarations are of use.
std::vector<TilePiece> WeightsPieces(const Tile& tile);
std::vector<TilePiece> OptimizerPieces(const Tile& tile);

std::vector<SafetensorsDeclaration> Declarations(const std::vector<TilePiece>& pieces);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_

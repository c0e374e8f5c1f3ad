#include "engine/checkpoint/tile_files.h"

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

TilePiece Piece(const TensorSpec& tensor, const char* suffix, const char* dtype, void* section,
                int64_t element_bytes) {
  TilePiece piece;
  piece.declaration = {absl::StrCat(tensor.name, suffix), dtype, tensor.shape};
  if (section != nullptr) {
    piece.data = static_cast<char*>(section) + tensor.offset * element_bytes;
  }
  piece.bytes = tensor.elements * element_bytes;
  return piece;
}

}  // namespace

std::vector<TilePiece> WeightsPieces(const Tile& tile) {
  std::vector<TilePiece> pieces;
  for (const TensorSpec& tensor : tile.layout->tensors) {
    pieces.push_back(Piece(tensor, "", DTypeName(tile.weight_dtype), tile.weights,
                           DTypeBytes(tile.weight_dtype)));
  }
  return pieces;
}

std::vector<TilePiece> OptimizerPieces(const Tile& tile) {
  std::vector<TilePiece> pieces;
  const auto add = [&](const char* suffix, const char* dtype, void* section, int64_t bytes) {
    for (const TensorSpec& tensor : tile.layout->tensors) {
      if (!tensor.frozen) pieces.push_back(Piece(tensor, suffix, dtype, section, bytes));
    }
  };
  add(".exp_avg", "F32", tile.exp_avg, 4);
  add(".exp_avg_sq", "F32", tile.exp_avg_sq, 4);
  if (tile.weight_dtype == DType::kBF16) add(".remainder", "I16", tile.remainder, 2);
  return pieces;
}

std::vector<SafetensorsDeclaration> Declarations(const std::vector<TilePiece>& pieces) {
  std::vector<SafetensorsDeclaration> declarations;
  for (const TilePiece& piece : pieces) declarations.push_back(piece.declaration);
  return declarations;
}

}  // namespace megatrain

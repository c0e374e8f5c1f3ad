#include "engine/checkpoint/tile_files.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/master_convert.h"

namespace megatrain {
namespace {

// Sections count their places in elements of `section_bytes`.
TilePiece Piece(const TensorSpec& tensor, const char* suffix, const char* dtype, void* section,
                int64_t section_bytes, int64_t element_bytes) {
  TilePiece piece;
  std::string name = tensor.name_on_disk();
  std::vector<int64_t> shape = tensor.shape;
  const int64_t whole = tensor.whole_elements();
  if (tensor.columns > 0) {
    shape[1] = tensor.columns;
    name = HfColumnsName(name, tensor.source_begin, tensor.source_begin + tensor.columns);
  } else if (tensor.elements < whole) {
    const int64_t row = whole / shape[0], begin = tensor.source_begin / row;
    shape[0] = tensor.elements / row;
    name = HfPartName(name, begin, begin + shape[0]);
  }
  piece.declaration = {absl::StrCat(name, suffix), dtype, std::move(shape)};
  char* const data =
      section == nullptr ? nullptr : static_cast<char*>(section) + tensor.offset * section_bytes;
  // Columns lie in the file as they do in the tile.
  const bool is_whole = tensor.columns > 0;
  for (const TensorRun& run :
       is_whole ? std::vector<TensorRun>{{0, 0, tensor.elements}} : RunsOf(tensor)) {
    piece.runs.push_back({data == nullptr ? nullptr : data + run.place * element_bytes,
                          run.elements * element_bytes});
  }
  return piece;
}

}  // namespace

std::vector<TilePiece> WeightsPieces(const Tile& tile) {
  std::vector<TilePiece> pieces;
  for (const bool buffers : {true, false}) {
    for (const TensorSpec& tensor : tile.layout->tensors) {
      if (tensor.is_buffer != buffers) continue;
      const DType dtype = WeightDType(tensor, tile.weight_dtype);
      pieces.push_back(Piece(tensor, "", DTypeName(dtype), tile.weights,
                             DTypeBytes(tile.weight_dtype), DTypeBytes(dtype)));
    }
  }
  return pieces;
}

std::vector<TilePiece> OptimizerPieces(const Tile& tile) {
  std::vector<TilePiece> pieces;
  const auto add = [&](const char* suffix, const char* dtype, void* section, int64_t bytes) {
    for (const TensorSpec& tensor : tile.layout->tensors) {
      if (!tensor.frozen) pieces.push_back(Piece(tensor, suffix, dtype, section, bytes, bytes));
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

#include "engine/checkpoint/tile_files.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/hf_format.h"

namespace megatrain {
namespace {

TilePiece Piece(const TensorSpec& tensor, const char* suffix, const char* dtype,
                TileSection section, int64_t element_bytes) {
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
  TilePiece piece;
  piece.declaration = {absl::StrCat(name, suffix), dtype, std::move(shape)};
  piece.tensor = &tensor;
  piece.section = section;
  piece.element_bytes = element_bytes;
  // Columns lie in the file as they do in the tile.
  const bool is_whole = tensor.columns > 0;
  piece.runs = is_whole ? std::vector<TensorRun>{{0, 0, tensor.elements}} : RunsOf(tensor);
  return piece;
}

// Returns where an element of a tile or a place is in the section, null if it has none.
void* SectionAt(const Tile& tile, TileSection section, int64_t element) {
  switch (section) {
    case TileSection::kWeights:
      return tile.weights == nullptr ? nullptr : tile.WeightsAt(element);
    case TileSection::kRemainder:
      return tile.RemainderAt(element);
    case TileSection::kExpAvg:
      return tile.ExpAvgAt(element);
    case TileSection::kExpAvgSq:
      return tile.ExpAvgSqAt(element);
  }
  return nullptr;
}

}  // namespace

std::vector<TilePiece> WeightsPieces(const TileLayout& layout, DType weight_dtype) {
  std::vector<TilePiece> pieces;
  for (const bool buffers : {true, false}) {
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.is_buffer != buffers) continue;
      const DType dtype = WeightDType(tensor, weight_dtype);
      pieces.push_back(
          Piece(tensor, "", DTypeName(dtype), TileSection::kWeights, DTypeBytes(dtype)));
    }
  }
  return pieces;
}

std::vector<TilePiece> OptimizerPieces(const TileLayout& layout, DType weight_dtype) {
  std::vector<TilePiece> pieces;
  const auto add = [&](const char* suffix, const char* dtype, TileSection section, int64_t bytes) {
    for (const TensorSpec& tensor : layout.tensors) {
      if (!tensor.frozen) pieces.push_back(Piece(tensor, suffix, dtype, section, bytes));
    }
  };
  add(".exp_avg", "F32", TileSection::kExpAvg, 4);
  add(".exp_avg_sq", "F32", TileSection::kExpAvgSq, 4);
  if (weight_dtype == DType::kBF16) add(".remainder", "I16", TileSection::kRemainder, 2);
  return pieces;
}

std::vector<SafetensorsDeclaration> Declarations(const std::vector<TilePiece>& pieces) {
  std::vector<SafetensorsDeclaration> declarations;
  for (const TilePiece& piece : pieces) declarations.push_back(piece.declaration);
  return declarations;
}

void AppendRuns(const TilePiece& piece, const TileLayout& layout, DType weight_dtype,
                const HeldElements& held, int64_t offset, std::vector<PieceRun>& runs) {
  const ElementRange there = HeldOf(layout, weight_dtype, held, *piece.tensor);
  for (const TensorRun& run : piece.runs) {
    const ElementRange part = Intersection({run.place, run.place + run.elements}, there);
    if (part.elements() > 0) {
      runs.push_back({&piece, part, offset + (part.begin - run.place) * piece.element_bytes});
    }
    offset += run.elements * piece.element_bytes;
  }
}

absl::StatusOr<TileFile> LayOutTileFile(const ModelLayout& layout, int index, bool weights,
                                        DType weight_dtype) {
  const TileLayout& tile = layout.tiles[index];
  TileFile file;
  file.name = weights ? WeightsFileName(index, layout.tile_count())
                      : OptimizerFileName(index, layout.tile_count());
  file.pieces = weights ? WeightsPieces(tile, weight_dtype) : OptimizerPieces(tile, weight_dtype);
  MT_ASSIGN_OR_RETURN(file.header,
                      MakeSafetensorsHeader(Declarations(file.pieces), file.name, &file.bytes));
  file.bytes += file.header_bytes();
  return file;
}

std::vector<PieceRun> RunsOf(const TileFile& file, const TileLayout& layout, DType weight_dtype,
                             const HeldElements& held) {
  std::vector<PieceRun> runs;
  int64_t offset = file.header_bytes();
  for (const TilePiece& piece : file.pieces) {
    AppendRuns(piece, layout, weight_dtype, held, offset, runs);
    offset += piece.tensor->elements * piece.element_bytes;
  }
  return runs;
}

PartOfFile::PartOfFile(int64_t header_bytes, std::vector<FileRange> ranges)
    : ranges_(std::move(ranges)), begins_{header_bytes} {
  for (const FileRange& range : ranges_) {
    begins_.push_back(begins_.back() + range.end - range.begin);
  }
}

PartOfFile::PartOfFile(const TileFile& file, const TileLayout& layout, DType weight_dtype,
                       const HeldElements& held)
    : PartOfFile(file.header_bytes(), [&] {
        std::vector<FileRange> ranges;
        for (const PieceRun& run : RunsOf(file, layout, weight_dtype, held)) {
          if (ranges.empty() || ranges.back().end != run.offset) ranges.push_back({run.offset, 0});
          ranges.back().end = run.offset + run.bytes();
        }
        return ranges;
      }()) {}

bool PartOfFile::ToPartOffsets(std::vector<PieceRun>& runs) const {
  for (PieceRun& run : runs) {
    const auto range = std::partition_point(
        ranges_.begin(), ranges_.end(), [&](const FileRange& r) { return r.end <= run.offset; });
    if (range == ranges_.end() || run.offset < range->begin ||
        range->end < run.offset + run.bytes()) {
      return false;
    }
    run.offset += begins_[range - ranges_.begin()] - range->begin;
  }
  return true;
}

std::vector<FilePiece> PlacesOf(const std::vector<PieceRun>& runs, const Tile& tile) {
  std::vector<FilePiece> places;
  for (const PieceRun& run : runs) {
    if (SectionAt(tile, run.piece->section, tile.held.state.begin) == nullptr) continue;
    const Tile place = TensorTile(tile, *run.piece->tensor);
    void* const data = SectionAt(place, run.piece->section, run.elements.begin);
    places.push_back({run.offset, static_cast<char*>(data), run.bytes()});
  }
  return places;
}

}  // namespace megatrain

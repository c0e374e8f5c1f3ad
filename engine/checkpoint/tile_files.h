// Lists the tensors of a tile's two checkpoint files in file order. The writer and the reader share
// these lists.
//
//   model-*.safetensors      the tile's tensors under their Hugging Face names: buffers (F32), then
//                            the others (BF16 or F32) by their offset in the tile
//   optimizer-*.safetensors  NAME.exp_avg (F32) of every tensor that is not frozen, then their
//                            NAME.exp_avg_sq (F32), then with BF16 weights their NAME.remainder
//                            (I16)
// Four-byte elements come first, so that every tensor is aligned to its element size. A tile that
// has only a part of a tensor names it by HfPartName or HfColumnsName (hf_format.h) in place of
// NAME. The files of a part of a checkpoint (PartOfFile) have kPartSuffix (manifest.h) behind these
// names.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/hf/safetensors.h"
#include "engine/model/tile.h"

namespace megatrain {

enum class TileSection { kWeights, kRemainder, kExpAvg, kExpAvgSq };

// A piece is one section of a tensor, as it lies in a file. A tile may have the tensor's rows in
// another order. `runs` tell where the elements of the file are in the tile.
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

// Returns the declarations of `pieces`, in the same order.
std::vector<SafetensorsDeclaration> Declarations(const std::vector<TilePiece>& pieces);

// Elements of a piece that lie together, both in its file and in the tile.
struct PieceRun {
  const TilePiece* piece = nullptr;
  ElementRange elements;  // in the tile, counted from TensorSpec::offset (as TensorRun::place)
  int64_t offset = 0;     // of the first one in the file, in bytes

  int64_t bytes() const { return elements.elements() * piece->element_bytes; }
};
// Appends the runs of `piece` that a tile of `weight_dtype` with the elements `held` has, in the
// order of the file. `piece` begins at byte `offset` of the file. The runs point to `piece`.
void AppendRuns(const TilePiece& piece, const TileLayout& layout, DType weight_dtype,
                const HeldElements& held, int64_t offset, std::vector<PieceRun>& runs);

// A file of a tile.
struct TileFile {
  std::string name;
  std::string header;  // of safetensors, with its length
  std::vector<TilePiece> pieces;
  int64_t bytes = 0;  // header and pieces

  int64_t header_bytes() const { return static_cast<int64_t>(header.size()); }
};
// Returns the weights file of tile `index` (from 0) if `weights`, else its optimizer file, as they
// are laid out for a whole tile. The result points to `layout`. Returns the errors of
// MakeSafetensorsHeader.
absl::StatusOr<TileFile> LayOutTileFile(const ModelLayout& layout, int index, bool weights,
                                        DType weight_dtype);
// Returns the runs of the file that a tile of `weight_dtype` with the elements `held` has, in the
// order of the file. The result points into `file`.
std::vector<PieceRun> RunsOf(const TileFile& file, const TileLayout& layout, DType weight_dtype,
                             const HeldElements& held);

// The bytes of a tile's file that a part of a checkpoint has, as they lie in the part's own file:
// the header, then ranges of the whole file, one after the other.
class PartOfFile {
 public:
  // `ranges` are ascending and apart, and lie behind the header.
  PartOfFile(int64_t header_bytes, std::vector<FileRange> ranges);
  // The part has the bytes of `file` that a tile of `weight_dtype` with the elements `held` has.
  PartOfFile(const TileFile& file, const TileLayout& layout, DType weight_dtype,
             const HeldElements& held);

  const std::vector<FileRange>& ranges() const { return ranges_; }
  // Returns the length of the part's file.
  int64_t bytes() const { return begins_.back(); }
  // Replaces the offsets of `runs` in the whole file by those in the part's file. Returns false if
  // the part lacks bytes of a run; the offsets are undefined then.
  bool ToPartOffsets(std::vector<PieceRun>& runs) const;

 private:
  std::vector<FileRange> ranges_;
  std::vector<int64_t> begins_;  // in the part's file, of the ranges; the last is the file's end
};

// Returns the places of `runs` in the memory of `tile`, without those of its sections that are
// null. REQUIRES: `tile` holds the elements of all runs.
std::vector<FilePiece> PlacesOf(const std::vector<PieceRun>& runs, const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_H_

#include "engine/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/content_hash.h"
#include "engine/base/status.h"
#include "engine/checkpoint/disk/concurrent_for.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/checkpoint/tile_files.h"
#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

absl::Status BadSize(const std::string& path, int64_t bytes, int64_t expected) {
  return absl::DataLossError(
      absl::StrCat(path, " has ", bytes, " bytes, the manifest says ", expected));
}

// Opens a file that the manifest lists and checks its size.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenListed(const std::string& path,
                                                             const ManifestFile& entry,
                                                             FileSystem* files) {
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = files->OpenBlocksForReading(path);
  if (absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat(path, " is missing"));
  }
  // A directory, a pipe, a link to itself: no checkpoint has that.
  if (absl::IsInvalidArgument(file.status())) {
    return absl::DataLossError(file.status().message());
  }
  if (file.ok() && (*file)->size() != entry.bytes) {
    return BadSize(path, (*file)->size(), entry.bytes);
  }
  return file;
}

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: ", what, " checksum is not the one in the manifest"));
}

// Reads a file that the manifest lists, checks its hash and copies it to `pieces`.
absl::Status ReadListed(const std::string& path, const ManifestFile& entry,
                        const std::vector<FilePiece>& pieces, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenListed(path, entry, files));
  ContentHash hash;
  MT_RETURN_IF_ERROR(ReadInBlocks(*file, [&](int64_t offset, const char* block, int64_t bytes) {
    hash.Update(block, bytes);
    CopyToPieces(block, offset, bytes, pieces);
    return absl::OkStatus();
  }));
  return hash.Hex() == entry.xxh3_128 ? absl::OkStatus() : Damaged(path, "its");
}

// Does the same with the blocks alone that have bytes of `pieces`, and their hashes.
absl::Status ReadListedBlocks(const std::string& path, const ManifestFile& entry,
                              const std::vector<FilePiece>& pieces, FileSystem* files) {
  static_assert(kTransferBlockBytes == kHashBlockBytes);
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenListed(path, entry, files));
  return ReadInBlocks(
      *file,
      [&](int64_t offset, const char* block, int64_t bytes) {
        const std::string hash = HashBytes({block, static_cast<size_t>(bytes)});
        if (hash != entry.BlockHash(offset)) {
          return Damaged(path, absl::StrCat("at byte ", offset, " a block's"));
        }
        CopyToPieces(block, offset, bytes, pieces);
        return absl::OkStatus();
      },
      [&](int64_t offset, int64_t bytes) {
        const auto piece = std::partition_point(
            pieces.begin(), pieces.end(),
            [&](const FilePiece& one) { return one.offset + one.bytes <= offset; });
        return piece != pieces.end() && piece->offset < offset + bytes;
      });
}

absl::Status VerifyFile(const std::string& path, const ManifestFile& entry, FileSystem* files) {
  return ReadListed(path, entry, {}, files);
}

// The pieces in the order of the file, each with its place: checks that the file holds just them.
absl::Status CheckTensors(const SafetensorsReader& reader,
                          const std::map<std::string_view, const TilePiece*>& pieces) {
  for (const auto& [name, piece] : pieces) {
    const SafetensorsTensor* tensor = reader.Find(name);
    const SafetensorsDeclaration& wanted = piece->declaration;
    if (tensor == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          reader.path(), " has no tensor ", wanted.name, ": the checkpoint is of another model"));
    }
    if (tensor->dtype != wanted.dtype || tensor->shape != wanted.shape) {
      return absl::FailedPreconditionError(absl::StrCat(
          reader.path(), ": tensor ", wanted.name, " is ", tensor->dtype, ShapeText(tensor->shape),
          ", the model has ", wanted.dtype, ShapeText(wanted.shape)));
    }
  }
  for (const SafetensorsTensor& tensor : reader.header().tensors) {
    if (pieces.count(tensor.name) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(reader.path(), " has tensor ", tensor.name, ", which the model has not"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPieces(const std::string& path, const ManifestFile& entry,
                        const std::vector<TilePiece>& pieces, const Tile& tile, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                      SafetensorsReader::Open(files, path));
  std::map<std::string_view, const TilePiece*> by_name;
  for (const TilePiece& piece : pieces) by_name[piece.declaration.name] = &piece;
  MT_RETURN_IF_ERROR(CheckTensors(*reader, by_name));

  // The header, which said where the tensors are, is verified too.
  std::vector<FilePiece> places = {{0, nullptr, reader->header().data_offset}};
  std::vector<PieceRun> runs;
  for (const SafetensorsTensor& tensor : reader->header().tensors) {
    AppendRuns(*by_name[tensor.name], *tile.layout, tile.weight_dtype, tile.held,
               reader->header().data_offset + tensor.begin, runs);
  }
  for (const FilePiece& place : PlacesOf(runs, tile)) places.push_back(place);
  return entry.blocks.empty() ? ReadListed(path, entry, places, files)
                              : ReadListedBlocks(path, entry, places, files);
}

absl::Status LoadPieces(const std::string& checkpoint, const Manifest& manifest,
                        const std::string& name, const std::vector<TilePiece>& pieces,
                        const Tile& tile, FileSystem* files) {
  const ManifestFile* entry = manifest.Find(name);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        checkpoint, " has ", manifest.tiles, " tiles and no ", name, ": it is of another model"));
  }
  const std::string path = JoinPath(checkpoint, name);
  const absl::Status status = ReadPieces(path, *entry, pieces, tile, files);
  if (status.ok() || absl::IsDataLoss(status)) return status;
  // A file with a damaged header looks like one of another model.
  const absl::Status file = VerifyFile(path, *entry, files);
  return absl::IsDataLoss(file) ? file : status;
}

// Does as LoadPieces, with a checkpoint that has a part of the tiles.
absl::Status LoadFromPart(const std::string& checkpoint, const Manifest& manifest,
                          const TileFile& file, const Tile& tile, FileSystem* files) {
  const std::string name = absl::StrCat(file.name, kPartSuffix);
  const ManifestFile* const entry = manifest.Find(name);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        checkpoint, " has ", manifest.tiles, " tiles and no ", name, ": it is of another model"));
  }
  const std::string path = JoinPath(checkpoint, name);
  const PartOfFile part(file.header_bytes(), entry->ranges);
  std::vector<PieceRun> runs = RunsOf(file, *tile.layout, tile.weight_dtype, tile.held);
  if (!part.ToPartOffsets(runs)) {
    return absl::FailedPreconditionError(absl::StrCat(
        checkpoint, " is part ", manifest.part->number + 1, " of ", manifest.part->parts,
        ": it has what the processes of one machine held (checkpoint.shared: false). Join all "
        "parts with `megatraind gather`, or resume with as many processes on each machine as "
        "saved it"));
  }
  std::string header(file.header.size(), '\0');
  std::vector<FilePiece> places = {{0, header.data(), file.header_bytes()}};
  for (const FilePiece& place : PlacesOf(runs, tile)) places.push_back(place);
  MT_RETURN_IF_ERROR(entry->blocks.empty() ? ReadListed(path, *entry, places, files)
                                           : ReadListedBlocks(path, *entry, places, files));
  if (header == file.header && part.bytes() == entry->bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " has other tensors than the model: the checkpoint is of another model"));
}

}  // namespace

absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint, FileSystem* files) {
  const std::string path = JoinPath(checkpoint, kManifestFile);
  const absl::StatusOr<std::string> text = ReadWholeFile(files, path, kManifestBytesMax);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(checkpoint, " is not a whole checkpoint: there is no ", path));
  }
  if (absl::IsInvalidArgument(text.status()) || absl::IsOutOfRange(text.status())) {
    return absl::DataLossError(text.status().message());
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<Manifest> manifest = ParseManifest(*text);
  if (!manifest.ok()) {
    return absl::Status(manifest.status().code(),
                        absl::StrCat(checkpoint, "/", manifest.status().message()));
  }
  return manifest;
}

absl::StatusOr<CheckpointState> ReadCheckpointState(const std::string& checkpoint,
                                                    FileSystem* files) {
  MT_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(checkpoint, files));
  return manifest.state;
}

absl::Status VerifyCheckpoint(const std::string& checkpoint, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, files));
  std::vector<ManifestFile> by_size = manifest.files;
  // A large file that comes last would be read alone.
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return ConcurrentFor(
      static_cast<int>(by_size.size()), kTransferThreads, [](int) { return absl::OkStatus(); },
      [&](int i) { return VerifyFile(JoinPath(checkpoint, by_size[i].name), by_size[i], files); });
}

absl::Status VerifyAllButTileContents(const std::string& checkpoint, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, files));
  std::set<std::string> of_tiles;
  for (int tile = 0; tile < manifest.tiles; ++tile) {
    for (std::string& name : manifest.TileFileNames(tile)) of_tiles.insert(std::move(name));
  }
  for (const ManifestFile& file : manifest.files) {
    const std::string path = JoinPath(checkpoint, file.name);
    MT_RETURN_IF_ERROR(of_tiles.contains(file.name) ? OpenListed(path, file, files).status()
                                                    : VerifyFile(path, file, files));
  }
  return absl::OkStatus();
}

bool IsDamagedCheckpoint(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status);
}

absl::Status LoadCheckpointTile(const std::string& checkpoint, const Manifest& manifest,
                                const ModelLayout& layout, int index, const Tile& tile,
                                FileSystem* files) {
  const bool wanted[] = {tile.weights != nullptr, tile.exp_avg != nullptr ||
                                                      tile.exp_avg_sq != nullptr ||
                                                      tile.remainder != nullptr};
  for (const bool weights : {true, false}) {
    if (!wanted[weights ? 0 : 1]) continue;
    MT_ASSIGN_OR_RETURN(const TileFile file,
                        LayOutTileFile(layout, index, weights, tile.weight_dtype));
    MT_RETURN_IF_ERROR(manifest.part.has_value()
                           ? LoadFromPart(checkpoint, manifest, file, tile, files)
                           : LoadPieces(checkpoint, manifest, file.name, file.pieces, tile, files));
  }
  ZeroPadding(tile);
  return absl::OkStatus();
}

}  // namespace megatrain

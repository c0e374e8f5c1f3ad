#include "engine/checkpoint/checkpoint_reader.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/checkpoint/tile_files.h"
#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

// Small enough to be in the cache still when it is hashed.
constexpr int64_t kChunkBytes = int64_t{1} << 20;

absl::Status BadSize(const std::string& path, int64_t bytes, int64_t expected) {
  return absl::DataLossError(
      absl::StrCat(path, " has ", bytes, " bytes, the manifest says ", expected));
}

absl::Status BadHash(const std::string& path) {
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: its checksum is not the one in the manifest"));
}

absl::Status VerifyFile(const std::string& path, const ManifestFile& file, FileSystem* files) {
  int64_t bytes = 0;
  const absl::StatusOr<std::string> hash = HashFile(files, path, &bytes);
  if (absl::IsNotFound(hash.status())) {
    return absl::DataLossError(absl::StrCat(path, " is missing"));
  }
  // A directory, a pipe, a link to itself: no checkpoint has that.
  if (absl::IsInvalidArgument(hash.status())) {
    return absl::DataLossError(hash.status().message());
  }
  if (!hash.ok()) return hash.status();
  if (bytes != file.bytes) return BadSize(path, bytes, file.bytes);
  if (*hash != file.xxh3_128) return BadHash(path);
  return absl::OkStatus();
}

absl::Status VerifySize(const std::string& path, const ManifestFile& file, FileSystem* files) {
  const auto opened = files->OpenForReading(path);
  if (absl::IsNotFound(opened.status())) {
    return absl::DataLossError(absl::StrCat(path, " is missing"));
  }
  if (absl::IsInvalidArgument(opened.status())) {
    return absl::DataLossError(opened.status().message());
  }
  if (!opened.ok()) return opened.status();
  if ((*opened)->size() != file.bytes) return BadSize(path, (*opened)->size(), file.bytes);
  return absl::OkStatus();
}

class RunningHash {
 public:
  RunningHash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~RunningHash() { XXH3_freeState(state_); }
  RunningHash(const RunningHash&) = delete;
  RunningHash& operator=(const RunningHash&) = delete;
  void Update(const void* data, int64_t bytes) { XXH3_128bits_update(state_, data, bytes); }
  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t* const state_;
};

// Reads bytes [offset, offset + bytes) of `file` to `out`, or only hashes them if `out` is null.
absl::Status ReadHashed(const RandomAccessFile& file, int64_t offset, char* out, int64_t bytes,
                        std::vector<char>& scratch, RunningHash& hash) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t chunk = std::min(bytes - done, kChunkBytes);
    if (out == nullptr) scratch.resize(kChunkBytes);
    char* to = out == nullptr ? scratch.data() : out + done;
    MT_RETURN_IF_ERROR(file.Read(offset + done, to, chunk));
    hash.Update(to, chunk);
    done += chunk;
  }
  return absl::OkStatus();
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
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
                        const std::vector<TilePiece>& pieces, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                      SafetensorsReader::Open(files, path));
  std::map<std::string_view, const TilePiece*> by_name;
  for (const TilePiece& piece : pieces) by_name[piece.declaration.name] = &piece;
  MT_RETURN_IF_ERROR(CheckTensors(*reader, by_name));

  // The whole file in one pass, header included, so that its checksum is known at the end.
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, files->OpenForReading(path));
  if (file->size() != entry.bytes) return BadSize(path, file->size(), entry.bytes);
  RunningHash hash;
  std::vector<char> scratch;
  const int64_t data_offset = reader->header().data_offset;
  MT_RETURN_IF_ERROR(ReadHashed(*file, 0, nullptr, data_offset, scratch, hash));
  for (const SafetensorsTensor& tensor : reader->header().tensors) {
    MT_RETURN_IF_ERROR(ReadHashed(*file, data_offset + tensor.begin, by_name[tensor.name]->data,
                                  tensor.bytes(), scratch, hash));
  }
  if (hash.Hex() != entry.xxh3_128) return BadHash(path);
  return absl::OkStatus();
}

absl::Status LoadPieces(const std::string& checkpoint, const Manifest& manifest,
                        const std::string& name, const std::vector<TilePiece>& pieces,
                        FileSystem* files) {
  const ManifestFile* entry = manifest.Find(name);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        checkpoint, " has ", manifest.tiles, " tiles and no ", name, ": it is of another model"));
  }
  const std::string path = JoinPath(checkpoint, name);
  const absl::Status status = ReadPieces(path, *entry, pieces, files);
  if (status.ok() || absl::IsDataLoss(status)) return status;
  // A file with a damaged header looks like one of another model.
  const absl::Status file = VerifyFile(path, *entry, files);
  return absl::IsDataLoss(file) ? file : status;
}

// Everything in a section that belongs to no tensor. Sections of the `state` have no frozen ones.
void ZeroPadding(const TileLayout& layout, void* section, int64_t element_bytes, bool state) {
  if (section == nullptr) return;
  char* const bytes = static_cast<char*>(section);
  int64_t end = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    if (state && tensor.frozen) continue;
    std::memset(bytes + end * element_bytes, 0, (tensor.offset - end) * element_bytes);
    end = tensor.offset + tensor.elements;
  }
  const int64_t elements = state ? layout.state_elements() : layout.elements;
  std::memset(bytes + end * element_bytes, 0, (elements - end) * element_bytes);
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
  for (const ManifestFile& file : manifest.files) {
    MT_RETURN_IF_ERROR(VerifyFile(JoinPath(checkpoint, file.name), file, files));
  }
  return absl::OkStatus();
}

absl::Status VerifyBeforeLoading(const std::string& checkpoint, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, files));
  std::set<std::string> of_tiles;
  for (int tile = 0; tile < manifest.tiles; ++tile) {
    of_tiles.insert(WeightsFileName(tile, manifest.tiles));
    of_tiles.insert(OptimizerFileName(tile, manifest.tiles));
  }
  for (const ManifestFile& file : manifest.files) {
    const std::string path = JoinPath(checkpoint, file.name);
    MT_RETURN_IF_ERROR(of_tiles.contains(file.name) ? VerifySize(path, file, files)
                                                    : VerifyFile(path, file, files));
  }
  return absl::OkStatus();
}

bool IsDamagedCheckpoint(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status);
}

absl::Status LoadCheckpointTile(const std::string& checkpoint, const ModelLayout& layout, int index,
                                const Tile& tile, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, files));
  const int tiles = layout.tile_count();
  if (tile.weights != nullptr) {
    MT_RETURN_IF_ERROR(LoadPieces(checkpoint, manifest, WeightsFileName(index, tiles),
                                  WeightsPieces(tile), files));
  }
  if (tile.exp_avg != nullptr || tile.exp_avg_sq != nullptr || tile.remainder != nullptr) {
    MT_RETURN_IF_ERROR(LoadPieces(checkpoint, manifest, OptimizerFileName(index, tiles),
                                  OptimizerPieces(tile), files));
  }
  ZeroPadding(*tile.layout, tile.weights, DTypeBytes(tile.weight_dtype), /*state=*/false);
  ZeroPadding(*tile.layout, tile.remainder, 2, /*state=*/true);
  ZeroPadding(*tile.layout, tile.exp_avg, 4, /*state=*/true);
  ZeroPadding(*tile.layout, tile.exp_avg_sq, 4, /*state=*/true);
  return absl::OkStatus();
}

}  // namespace megatrain

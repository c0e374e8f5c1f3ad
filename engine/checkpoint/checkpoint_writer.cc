#include "engine/checkpoint/checkpoint_writer.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/checkpoint/tile_files.h"
#include "engine/checkpoint/tile_files_writer.h"
#include "engine/comm/exchange.h"
#include "engine/hf/carried_tensors.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

// CreateDirectories, and every directory that is new has its name made durable in its parent.
absl::Status CreateDirectoriesDurably(const std::string& path, FileSystem* files) {
  std::vector<std::string> parents;
  for (std::string at = path; !files->IsDirectory(at);) {
    const std::string parent = ParentDirectory(at);
    if (parent == at) break;
    parents.push_back(parent);
    at = parent;
  }
  MT_RETURN_IF_ERROR(files->CreateDirectories(path));
  for (const std::string& parent : parents) MT_RETURN_IF_ERROR(files->SyncDirectory(parent));
  return absl::OkStatus();
}

absl::Status CheckFreeSpace(const std::string& directory, int64_t needed, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const int64_t free, files->FreeDiskBytes(directory));
  if (free >= needed) return absl::OkStatus();
  return DiskFullError(absl::StrCat(
      "disk full: a checkpoint needs ", FormatBytes(needed), " in ", directory, ", where ",
      FormatBytes(free),
      " are free; make room there or name another checkpoint.directory (a new checkpoint is "
      "written before an old one is removed, so there must be room for checkpoint.keep + 1)"));
}

class Writer : public CheckpointWriter {
 public:
  Writer(const std::string& directory, const ModelLayout& layout, const CheckpointState& state,
         FileSystem* files, const DirectoryRanks& ranks)
      : files_(files),
        ranks_(ranks),
        communicator_(ranks.communicator),
        layout_(layout),
        directory_(directory),
        final_path_(JoinPath(directory, StepDirectoryName(state.step))),
        path_(absl::StrCat(final_path_, kUnfinishedSuffix)),
        tile_files_(
            std::make_unique<TileFilesWriter>(path_, layout, state.weight_dtype, ranks, files)) {
    manifest_.tiles = layout.tile_count();
    manifest_.state = state;
  }

  ~Writer() override { Remove(); }

  absl::Status Start(const HfSideFiles& side_files) {
    if (ranks_.parts > 1) {
      MT_ASSIGN_OR_RETURN(const std::string save, FromFirstRank(communicator_, NewRunName()));
      manifest_.part = {ranks_.part, ranks_.parts, save};
    }
    MT_RETURN_IF_ERROR(
        Agree(communicator_, leads() ? StartDirectory(side_files) : absl::OkStatus()));
    // Each save checks it again: another file system may be mounted there since, and one of a
    // network may tell of the new directory late.
    return CheckIsShared(path_, ranks_, files_);
  }

  absl::Status WriteTile(int index, absl::Span<const Tile> parts) override {
    MT_RETURN_IF_ERROR(status_);
    status_ = tile_files_->WriteTile(index, parts);
    // The disk may be full. Other ranks may still write.
    if (!status_.ok() && communicator_ == nullptr) Remove();
    return status_;
  }

  void SetEvaluations(const Evaluations& evaluations) override {
    manifest_.state.evaluations = evaluations;
  }

  absl::StatusOr<std::string> Finish(const Retention& retention) override {
    status_ = FinishAll(retention);
    MT_RETURN_IF_ERROR(status_);
    if (leads()) PruneCheckpoints(directory_, manifest_.state, retention, &notes_, files_);
    if (communicator_ != nullptr) TellFirst();
    return final_path_;
  }

  const std::vector<std::string>& notes() const override { return notes_; }

 private:
  enum class Phase { kNothing, kWriting, kRenamed };

  // Returns true for the rank that does what is done once in its directory.
  bool leads() const { return ranks_.leads(); }

  void Remove() {
    tile_files_ = nullptr;
    if (phase_ == Phase::kWriting) files_->RemoveTree(path_).IgnoreError();
    phase_ = Phase::kNothing;
  }

  absl::Status StartDirectory(const HfSideFiles& side_files) {
    MT_RETURN_IF_ERROR(CreateDirectoriesDurably(directory_, files_));
    MT_ASSIGN_OR_RETURN(notes_, RemoveLeftovers(directory_, files_));
    if (files_->FileExists(path_)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, " is in the way of the checkpoint of step ", manifest_.state.step,
                       " and is no leftover of one, or cannot be removed: move it",
                       notes_.empty() ? "" : absl::StrCat(" (", absl::StrJoin(notes_, "; "), ")")));
    }
    if (files_->IsDirectory(final_path_)) {
      MT_RETURN_IF_ERROR(CheckHoldsOnlyCheckpointFiles(final_path_, files_));
    } else if (files_->FileExists(final_path_)) {
      return absl::FailedPreconditionError(
          absl::StrCat(final_path_, " is in the way of the checkpoint of step ",
                       manifest_.state.step, " and is not a directory: move it"));
    }
    // Machines divide the tiles, and each has the other files.
    const int64_t carried = layout_.model.wrapper.carried_bytes;
    const int64_t tiles = EstimateBytes(layout_, manifest_.state.weight_dtype) - carried;
    MT_RETURN_IF_ERROR(CheckFreeSpace(
        directory_, tiles * (ranks_.end - ranks_.begin) / ranks_.ranks() + carried, files_));
    MT_ASSIGN_OR_RETURN(carried_,
                        CarriedTensors::Open(files_, side_files.directory, layout_.model.wrapper,
                                             side_files.carried_digest));
    phase_ = Phase::kWriting;
    MT_RETURN_IF_ERROR(files_->CreateDirectories(path_));
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        CopyHfSideFiles(files_, side_files, manifest_.state.weight_dtype, path_));
    for (const std::string& name : names) MT_RETURN_IF_ERROR(AddFileOnDisk(name));
    return absl::OkStatus();
  }

  absl::Status AddFileOnDisk(const std::string& name) {
    ManifestFile file;
    file.name = name;
    MT_ASSIGN_OR_RETURN(file.xxh3_128, HashFile(files_, JoinPath(path_, name), &file.bytes));
    manifest_.files.push_back(std::move(file));
    return absl::OkStatus();
  }

  absl::Status WriteCarried() {
    if (carried_.names().empty()) return absl::OkStatus();
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> file,
                        carried_.Write(files_, JoinPath(path_, kCarriedFileName)));
    manifest_.files.push_back({kCarriedFileName, file->file_bytes(), file->Hash()});
    return absl::OkStatus();
  }

  absl::Status WriteIndex() {
    HfWeightMap weight_map;
    int64_t tensor_bytes = 0;
    bool parts = false;
    for (int tile = 0; tile < layout_.tile_count(); ++tile) {
      for (const TilePiece& piece :
           WeightsPieces(layout_.tiles[tile], manifest_.state.weight_dtype)) {
        const std::string& name = piece.declaration.name;
        tensor_bytes += piece.tensor->elements * piece.element_bytes;
        weight_map[name] = WeightsFileName(tile, layout_.tile_count());
        parts |= HfWholeName(name) != name;
      }
    }
    for (const std::string& name : carried_.names()) weight_map[name] = kCarriedFileName;
    tensor_bytes += layout_.model.wrapper.carried_bytes;
    const char* const name = parts ? kHfPartsIndexFileName : kHfIndexFileName;
    const std::string text = MakeHfIndex(weight_map, tensor_bytes);
    MT_RETURN_IF_ERROR(WriteFileSynced(files_, JoinPath(path_, name), text));
    manifest_.files.push_back({name, static_cast<int64_t>(text.size()), HashBytes(text)});
    return absl::OkStatus();
  }

  // Does the part of all ranks, and then of those that lead, and returns the same on all.
  absl::Status FinishAll(const Retention& retention) {
    if (tile_files_ == nullptr) return status_;
    MT_ASSIGN_OR_RETURN(const std::vector<ManifestFile> files, tile_files_->Finish(status_));
    absl::Status status;
    if (leads()) status = FinishDirectory(files);
    // No part gets its name before all are whole.
    if (ranks_.parts > 1) MT_RETURN_IF_ERROR(Agree(communicator_, status));
    if (leads() && status.ok()) status = TakeName(retention);
    const absl::Status agreed = Agree(communicator_, status);
    if (!leads()) return agreed;
    if (agreed.ok()) {
      RemoveMoved();
    } else if (ranks_.parts > 1 && communicator_->status().ok()) {
      GiveNameBack();
    }
    // Otherwise both stay, and RemoveLeftovers chooses: the new name may not be on the disk, and
    // where an exchange has failed, other machines may have given theirs.
    return agreed;
  }

  // Gives rank 0 the notes of the other machines. No rank goes on before all have come: a job may
  // end behind its last save, and a rank that leaves does not wait long for one that still deletes.
  void TellFirst() {
    const std::string own = leads() ? absl::StrJoin(notes_, "\n") : "";
    // Notes are no reason to fail.
    ExchangeBytes(communicator_, own, [&](int rank, absl::string_view notes) {
      if (ranks_.rank() > 0 || rank == 0) return;
      for (const absl::string_view note : absl::StrSplit(notes, '\n', absl::SkipEmpty())) {
        notes_.push_back(absl::StrCat("rank ", rank, ": ", note));
      }
    }).IgnoreError();
  }

  absl::Status FinishDirectory(const std::vector<ManifestFile>& tile_files) {
    if (!tile_files_->direct()) {
      notes_.push_back(absl::StrCat("the file system of ", directory_,
                                    " has no direct I/O: the checkpoint was written through the "
                                    "page cache"));
    }
    manifest_.files.insert(manifest_.files.end(), tile_files.begin(), tile_files.end());
    MT_RETURN_IF_ERROR(WriteCarried());
    MT_RETURN_IF_ERROR(WriteIndex());
    MT_RETURN_IF_ERROR(
        WriteFileSynced(files_, JoinPath(path_, kManifestFile), SerializeManifest(manifest_)));
    MT_RETURN_IF_ERROR(files_->SyncDirectory(path_));
    // Before it gets its name, so that a directory with that name was once good. The tiles' files
    // were read back before.
    return VerifyAllButTileContents(path_, files_);
  }

  struct Move {
    std::string from, to;
  };

  // Lists the checkpoints to move aside for this one, that of its own step first: while it is
  // absent, RemoveLeftovers knows that the others are still valid.
  absl::StatusOr<std::vector<Move>> MovesAside(const Retention& retention) const {
    const int64_t step = manifest_.state.step;
    MT_ASSIGN_OR_RETURN(const std::vector<int64_t> present, ListSteps(directory_, files_));
    std::vector<Move> moves;
    const auto add = [&](int64_t aside) {
      moves.push_back({JoinPath(directory_, StepDirectoryName(aside)),
                       JoinPath(directory_, ReplacedDirectoryName(aside, step))});
    };
    if (absl::c_linear_search(present, step)) add(step);
    for (const int64_t aside : retention.discard) {
      if (aside != step && absl::c_linear_search(present, aside)) add(aside);
    }
    for (const Move& move : moves) {
      MT_RETURN_IF_ERROR(CheckHoldsOnlyCheckpointFiles(move.from, files_));
    }
    return moves;
  }

  absl::Status TakeName(const Retention& retention) {
    MT_ASSIGN_OR_RETURN(const std::vector<Move> moves, MovesAside(retention));
    absl::Status status;
    for (const Move& move : moves) {
      status = files_->Rename(move.from, move.to);
      if (!status.ok()) break;
      moved_.push_back(move);
    }
    if (status.ok() && !moved_.empty()) status = files_->SyncDirectory(directory_);
    // Between the renaming above and this one a crash leaves no name; RemoveLeftovers gives it
    // back.
    if (status.ok()) status = files_->Rename(path_, final_path_);
    if (!status.ok()) {
      MoveBack();
      return status;
    }
    phase_ = Phase::kRenamed;
    return files_->SyncDirectory(directory_);
  }

  void MoveBack() {
    for (; !moved_.empty(); moved_.pop_back()) {
      files_->Rename(moved_.back().to, moved_.back().from).IgnoreError();
    }
  }

  // Undoes TakeName, because another machine could not do it.
  void GiveNameBack() {
    if (phase_ != Phase::kRenamed || !files_->Rename(final_path_, path_).ok()) return;
    phase_ = Phase::kWriting;
    MoveBack();
  }

  // Removes what was moved aside. REQUIRES: the new checkpoint has its name, also on the disk.
  void RemoveMoved() {
    for (const Move& move : moved_) {
      const absl::Status removed = files_->RemoveTree(move.to);
      if (!removed.ok()) notes_.push_back(std::string(removed.message()));
    }
  }

  FileSystem* const files_;
  const DirectoryRanks ranks_;
  Communicator* const communicator_;  // that of ranks_
  const ModelLayout& layout_;
  const std::string directory_;
  const std::string final_path_;
  const std::string path_;  // .tmp
  Phase phase_ = Phase::kNothing;
  Manifest manifest_;
  CarriedTensors carried_;  // written by Finish
  std::unique_ptr<TileFilesWriter> tile_files_;
  std::vector<Move> moved_;  // by TakeName
  std::vector<std::string> notes_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Begin(
    const std::string& directory, const ModelLayout& layout, const CheckpointState& state,
    const HfSideFiles& side_files, FileSystem* files, const DirectoryRanks& ranks) {
  auto writer = std::make_unique<Writer>(directory, layout, state, files, ranks);
  MT_RETURN_IF_ERROR(writer->Start(side_files));
  return writer;
}

int64_t CheckpointWriter::EstimateBytes(const ModelLayout& layout, DType weight_dtype) {
  // config.json, and the fixed part of index and manifest: a few KiB.
  int64_t bytes = 8192;
  // The tensors that a wrapper carries, each with a line in its file's header and in the index.
  const WrapperDescription& wrapper = layout.model.wrapper;
  bytes += wrapper.carried_bytes + 300 * wrapper.carried_tensors;
  for (const TileLayout& tile_layout : layout.tiles) {
    const std::vector<SafetensorsDeclaration> weights =
        Declarations(WeightsPieces(tile_layout, weight_dtype));
    for (const int64_t file_bytes :
         {SafetensorsFileBytes(weights),
          SafetensorsFileBytes(Declarations(OptimizerPieces(tile_layout, weight_dtype)))}) {
      // In the manifest: a line, and a hash for each block.
      const int64_t blocks = 1 + file_bytes / kHashBlockBytes;
      bytes += file_bytes + 200 + blocks * static_cast<int64_t>(kHashDigits);
    }
    // Its line in the index: name, file name (32 bytes), quotes and indentation.
    for (const SafetensorsDeclaration& tensor : weights) {
      bytes += static_cast<int64_t>(tensor.name.size()) + 45;
    }
  }
  return bytes;
}

}  // namespace megatrain

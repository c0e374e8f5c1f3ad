#include "engine/inspect/gather_checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/bytes.h"
#include "engine/base/content_hash.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/directory_lock.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

struct Part {
  std::string path;
  Manifest manifest;
  CheckpointPart part;  // that of the manifest
};

// Returns the parts in the order of their numbers.
absl::StatusOr<std::vector<Part>> ReadParts(const std::vector<std::string>& paths,
                                            FileSystem* files) {
  std::vector<Part> parts;
  for (const std::string& path : paths) {
    MT_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(path, files));
    if (!manifest.part.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is no part: it is a checkpoint that has all of the model"));
    }
    const CheckpointPart part = *manifest.part;
    parts.push_back({path, std::move(manifest), part});
  }
  if (parts.empty()) return absl::InvalidArgumentError("no parts are given");
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.part.number < b.part.number; });
  const CheckpointPart& first = parts[0].part;
  for (size_t i = 0; i < parts.size(); ++i) {
    const CheckpointPart& part = parts[i].part;
    if (part.save != first.save || part.parts != first.parts ||
        parts[i].manifest.tiles != parts[0].manifest.tiles) {
      return absl::InvalidArgumentError(absl::StrCat(
          parts[i].path, " (step ", parts[i].manifest.state.step, ") and ", parts[0].path,
          " (step ", parts[0].manifest.state.step, ") are not of one save"));
    }
    if (i > 0 && part.number == parts[i - 1].part.number) {
      return absl::InvalidArgumentError(absl::StrCat(parts[i - 1].path, " and ", parts[i].path,
                                                     " are both part ", part.number + 1, " of ",
                                                     part.parts));
    }
    if (part.number != static_cast<int>(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", i + 1, " of ", part.parts, " is not given"));
    }
  }
  if (std::ssize(parts) != first.parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", parts.size() + 1, " of ", first.parts, " is not given"));
  }
  return parts;
}

// Reads a file of a part from its begin to its end.
class PartReader {
 public:
  static absl::StatusOr<PartReader> Open(const Part& part, const std::string& name,
                                         FileSystem* files) {
    PartReader reader;
    reader.entry_ = part.manifest.Find(name);
    const std::string path = JoinPath(part.path, name);
    if (reader.entry_ == nullptr) return absl::DataLossError(absl::StrCat(path, " is not listed"));
    MT_ASSIGN_OR_RETURN(reader.file_, files->OpenForReading(path));
    reader.left_ = reader.entry_->bytes;
    for (const FileRange& range : reader.entry_->ranges) reader.left_ -= range.end - range.begin;
    if (reader.left_ == 0 && !reader.entry_->ranges.empty()) {
      return absl::DataLossError(absl::StrCat(path, " has no header"));
    }
    return reader;
  }

  // Returns the bytes that are left of the range that is read: at first the header, or all of a
  // file without ranges. `offset` is where the next one lies in the whole file.
  int64_t left() const { return left_; }
  int64_t offset() const { return offset_; }
  bool ended() const { return place_ == entry_->bytes; }
  // Leaves the rest of the range out.
  absl::Status Skip() {
    std::string bytes;
    for (int64_t left = left_; left > 0; left -= static_cast<int64_t>(bytes.size())) {
      bytes.resize(static_cast<size_t>(std::min(left, kHashBlockBytes)));
      MT_RETURN_IF_ERROR(Read(bytes.data(), static_cast<int64_t>(bytes.size())));
    }
    return absl::OkStatus();
  }
  // REQUIRES: bytes <= left().
  absl::Status Read(char* out, int64_t bytes) {
    MT_RETURN_IF_ERROR(file_->Read(place_, out, bytes));
    hash_->Update(out, bytes);
    place_ += bytes;
    offset_ += bytes;
    left_ -= bytes;
    if (left_ == 0 && range_ < entry_->ranges.size()) {
      const FileRange& next = entry_->ranges[range_++];
      offset_ = next.begin;
      left_ = next.end - next.begin;
    }
    return absl::OkStatus();
  }
  // REQUIRES: ended().
  absl::Status Verify() const {
    if (file_->size() == entry_->bytes && hash_->Hex() == entry_->xxh3_128) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(file_->path(), " is damaged: its checksum is not the one in the manifest"));
  }

 private:
  PartReader() = default;

  const ManifestFile* entry_ = nullptr;
  std::unique_ptr<RandomAccessFile> file_;
  std::unique_ptr<ContentHash> hash_ = std::make_unique<ContentHash>();
  int64_t place_ = 0, offset_ = 0, left_ = 0;
  size_t range_ = 0;  // the one that follows
};

// Writes a file and its entry in the manifest.
class WholeFile {
 public:
  static absl::StatusOr<WholeFile> Create(const std::string& directory, const std::string& name,
                                          bool hashes_blocks, FileSystem* files) {
    WholeFile whole;
    whole.entry_.name = name;
    whole.hashes_blocks_ = hashes_blocks;
    MT_ASSIGN_OR_RETURN(whole.file_, files->NewWritableFile(JoinPath(directory, name)));
    return whole;
  }

  int64_t bytes() const { return entry_.bytes + static_cast<int64_t>(block_.size()); }
  // Appends the rest of the range that `part` is in.
  absl::Status Take(PartReader& part) {
    for (int64_t left = part.left(); left > 0;) {
      const auto filled = static_cast<int64_t>(block_.size());
      const int64_t bytes = std::min(left, kHashBlockBytes - filled);
      block_.resize(static_cast<size_t>(filled + bytes));
      MT_RETURN_IF_ERROR(part.Read(block_.data() + filled, bytes));
      left -= bytes;
      if (filled + bytes == kHashBlockBytes) MT_RETURN_IF_ERROR(WriteBlock());
    }
    return absl::OkStatus();
  }
  absl::StatusOr<ManifestFile> Finish() {
    if (!block_.empty()) MT_RETURN_IF_ERROR(WriteBlock());
    MT_RETURN_IF_ERROR(file_->Sync());
    MT_RETURN_IF_ERROR(file_->Close());
    entry_.xxh3_128 = hash_->Hex();
    return entry_;
  }

 private:
  WholeFile() = default;

  absl::Status WriteBlock() {
    const auto bytes = static_cast<int64_t>(block_.size());
    hash_->Update(block_.data(), bytes);
    if (hashes_blocks_) entry_.blocks += HashBytes(block_);
    entry_.bytes += bytes;
    MT_RETURN_IF_ERROR(file_->Append(block_.data(), bytes));
    block_.clear();
    return absl::OkStatus();
  }

  ManifestFile entry_;
  bool hashes_blocks_ = false;
  std::unique_ptr<WritableFile> file_;
  std::unique_ptr<ContentHash> hash_ = std::make_unique<ContentHash>();
  std::string block_;
};

// Joins the parts' files `name` of a tile.
absl::StatusOr<ManifestFile> JoinFile(const std::vector<Part>& parts, const std::string& name,
                                      const std::string& to, FileSystem* files) {
  std::vector<PartReader> readers;
  for (const Part& part : parts) {
    MT_ASSIGN_OR_RETURN(PartReader reader, PartReader::Open(part, name, files));
    readers.push_back(std::move(reader));
  }
  MT_ASSIGN_OR_RETURN(WholeFile whole,
                      WholeFile::Create(to, std::string(absl::StripSuffix(name, kPartSuffix)),
                                        /*hashes_blocks=*/true, files));
  MT_RETURN_IF_ERROR(whole.Take(readers[0]));  // the header, which all have
  for (size_t i = 1; i < readers.size(); ++i) MT_RETURN_IF_ERROR(readers[i].Skip());
  while (true) {
    const auto next = std::find_if(readers.begin(), readers.end(), [&](const PartReader& reader) {
      return !reader.ended() && reader.offset() == whole.bytes();
    });
    if (next == readers.end()) break;
    MT_RETURN_IF_ERROR(whole.Take(*next));
  }
  for (const PartReader& reader : readers) {
    if (!reader.ended()) {
      return absl::DataLossError(absl::StrCat("the parts have no byte ", whole.bytes(), " of ",
                                              name, ", or have bytes behind it twice"));
    }
    MT_RETURN_IF_ERROR(reader.Verify());
  }
  MT_ASSIGN_OR_RETURN(ManifestFile entry, whole.Finish());
  // Its header tells how long it must be.
  MT_RETURN_IF_ERROR(SafetensorsReader::Open(files, JoinPath(to, entry.name)).status());
  return entry;
}

// Copies a file that all parts have.
absl::StatusOr<ManifestFile> CopyFile(const Part& part, const std::string& name,
                                      const std::string& to, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(PartReader reader, PartReader::Open(part, name, files));
  MT_RETURN_IF_ERROR(files->CreateDirectories(ParentDirectory(JoinPath(to, name))));
  MT_ASSIGN_OR_RETURN(WholeFile whole, WholeFile::Create(to, name, /*hashes_blocks=*/false, files));
  MT_RETURN_IF_ERROR(whole.Take(reader));
  MT_RETURN_IF_ERROR(reader.Verify());
  return whole.Finish();
}

// Checks that no part lies in `directory`, where it might be taken for a leftover.
absl::Status CheckHoldsNone(const std::string& directory, const std::vector<Part>& parts,
                            FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const FileInfo own, files->Examine(directory));
  for (const Part& part : parts) {
    MT_ASSIGN_OR_RETURN(const FileInfo around, files->Examine(ParentDirectory(part.path)));
    if (around.device != own.device || around.inode != own.inode) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        part.path, " lies in the directory for the checkpoint; name another directory"));
  }
  return absl::OkStatus();
}

absl::Status Gather(const std::vector<Part>& parts, const std::string& to, FileSystem* files) {
  Manifest manifest;
  manifest.tiles = parts[0].manifest.tiles;
  manifest.state = parts[0].manifest.state;
  for (const ManifestFile& entry : parts[0].manifest.files) {
    const bool of_tile = entry.name.ends_with(kPartSuffix);
    MT_ASSIGN_OR_RETURN(manifest.files.emplace_back(),
                        of_tile ? JoinFile(parts, entry.name, to, files)
                                : CopyFile(parts[0], entry.name, to, files));
  }
  MT_RETURN_IF_ERROR(
      WriteFileSynced(files, JoinPath(to, kManifestFile), SerializeManifest(manifest)));
  const std::string templates = JoinPath(to, kHfTemplatesDirectory);
  if (files->IsDirectory(templates)) MT_RETURN_IF_ERROR(files->SyncDirectory(templates));
  MT_RETURN_IF_ERROR(files->SyncDirectory(to));
  return VerifyCheckpoint(to, files);
}

}  // namespace

absl::StatusOr<std::string> GatherCheckpoint(const std::vector<std::string>& parts,
                                             const std::string& directory, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::vector<Part> read, ReadParts(parts, files));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock, LockDirectory(directory, files));
  MT_RETURN_IF_ERROR(CheckHoldsNone(directory, read, files));
  MT_RETURN_IF_ERROR(RemoveLeftovers(directory, files).status());
  const std::string path = JoinPath(directory, StepDirectoryName(read[0].manifest.state.step));
  if (files->FileExists(path)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is there already; name another directory for the gathered checkpoint"));
  }
  int64_t needed = 0;
  for (const Part& part : read) {
    for (const ManifestFile& file : part.manifest.files) {
      // Files that all parts have are copied once.
      if (&part == &read[0] || absl::EndsWith(file.name, kPartSuffix)) needed += file.bytes;
    }
  }
  MT_ASSIGN_OR_RETURN(const int64_t free, files->FreeDiskBytes(directory));
  if (free < needed) {
    return DiskFullError(absl::StrCat("disk full: the checkpoint needs ", FormatBytes(needed),
                                      " in ", directory, ", where ", FormatBytes(free),
                                      " are free"));
  }
  const std::string unfinished = absl::StrCat(path, kUnfinishedSuffix);
  if (files->FileExists(unfinished)) {
    return absl::FailedPreconditionError(
        absl::StrCat(unfinished, " is in the way and is no leftover that can be removed; move it"));
  }
  absl::Cleanup remove = [&] { files->RemoveTree(unfinished).IgnoreError(); };
  MT_RETURN_IF_ERROR(files->CreateDirectories(unfinished));
  MT_RETURN_IF_ERROR(Gather(read, unfinished, files));
  MT_RETURN_IF_ERROR(files->Rename(unfinished, path));
  std::move(remove).Cancel();
  MT_RETURN_IF_ERROR(files->SyncDirectory(directory));
  return path;
}

}  // namespace megatrain

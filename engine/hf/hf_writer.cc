#include "engine/hf/hf_writer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/master_convert.h"
#include "engine/hf/placed_writer.h"
#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

// Returns the tensors of the model, ordered by their first parts. Those that lie in several tiles
// are there once.
std::vector<const TensorSpec*> WholeTensors(const ModelLayout& layout) {
  std::vector<const TensorSpec*> tensors;
  std::set<std::string_view> begun;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    if (tensor.elements == tensor.whole_elements() || begun.insert(tensor.name).second) {
      tensors.push_back(&tensor);
    }
  });
  return tensors;
}

int64_t WholeBytes(const TensorSpec& tensor, DType dtype) {
  return tensor.whole_elements() * DTypeBytes(WeightDType(tensor, dtype));
}

// An upper bound of a tensor's entry in the header, name apart: keys, punctuation, dtype (80
// bytes), a shape and two offsets of 20 digits each.
constexpr int64_t kHeaderEntryBytes = 160;
// Length, __metadata__, padding.
constexpr int64_t kHeaderFixedBytes = 64;

using Shard = std::vector<const TensorSpec*>;

std::vector<Shard> CutIntoShards(const ModelLayout& layout, DType dtype, int64_t shard_bytes) {
  std::vector<Shard> shards(1);
  int64_t bytes = kHeaderFixedBytes;
  for (const TensorSpec* const tensor : WholeTensors(layout)) {
    const int64_t more = WholeBytes(*tensor, dtype) + kHeaderEntryBytes +
                         static_cast<int64_t>(tensor->name_on_disk().size());
    if (!shards.back().empty() && bytes + more > shard_bytes) {
      shards.emplace_back();
      bytes = kHeaderFixedBytes;
    }
    bytes += more;
    shards.back().push_back(tensor);
  }
  for (Shard& shard : shards) {
    std::stable_partition(shard.begin(), shard.end(),
                          [](const TensorSpec* tensor) { return tensor->is_buffer; });
  }
  return shards;
}

// The files of a model's weights while they are written. A file is open from its first tensor's
// data to its last one's.
class ShardFiles {
 public:
  ShardFiles(FileSystem* files, std::string directory, DType dtype)
      : files_(files), directory_(std::move(directory)), dtype_(dtype) {}

  // Adds a file with these tensors, in their order.
  absl::Status Add(const std::string& name, const Shard& tensors) {
    File file = {JoinPath(directory_, name), "", 0, nullptr};
    std::vector<SafetensorsDeclaration> declarations;
    for (const TensorSpec* const tensor : tensors) {
      declarations.push_back(
          {tensor->name_on_disk(), DTypeName(WeightDType(*tensor, dtype_)), tensor->shape});
    }
    int64_t data_bytes = 0;
    MT_ASSIGN_OR_RETURN(file.header, MakeSafetensorsHeader(declarations, file.path, &data_bytes));
    file.bytes = std::ssize(file.header);
    for (const TensorSpec* const tensor : tensors) {
      places_[tensor->name] = {file_list_.size(), file.bytes};
      weight_map_[tensor->name_on_disk()] = name;
      file.bytes += WholeBytes(*tensor, dtype_);
    }
    total_bytes_ += data_bytes;
    file_list_.push_back(std::move(file));
    return absl::OkStatus();
  }

  // Writes `bytes` bytes of a tensor from its byte `begin` on.
  absl::Status Write(const TensorSpec& tensor, int64_t begin, const void* data, int64_t bytes) {
    const Place& place = places_.at(tensor.name);
    File& file = file_list_[place.file];
    if (file.writer == nullptr) {
      MT_ASSIGN_OR_RETURN(file.writer, PlacedWriter::Create(files_, file.path, file.bytes));
      MT_RETURN_IF_ERROR(file.writer->Write(0, file.header.data(), std::ssize(file.header)));
    }
    MT_RETURN_IF_ERROR(file.writer->Write(place.offset + begin, data, bytes));
    if (file.writer->missing() > 0) return absl::OkStatus();
    MT_RETURN_IF_ERROR(file.writer->Finish());
    file.writer = nullptr;
    file.is_whole = true;
    return absl::OkStatus();
  }

  // Returns Internal if a file is not whole.
  absl::Status CheckWhole() const {
    for (const File& file : file_list_) {
      if (file.is_whole) continue;
      const int64_t missing = file.writer == nullptr ? file.bytes : file.writer->missing();
      return absl::InternalError(absl::StrCat(file.path, ": ", missing, " bytes were not written"));
    }
    return absl::OkStatus();
  }

  HfWeightMap& weight_map() { return weight_map_; }
  int64_t total_bytes() const { return total_bytes_; }  // of all tensors

 private:
  struct File {
    std::string path, header;
    int64_t bytes = 0;
    std::unique_ptr<PlacedWriter> writer;
    bool is_whole = false;
  };
  struct Place {
    size_t file = 0;
    int64_t offset = 0;  // in the file
  };

  FileSystem* const files_;
  const std::string directory_;
  const DType dtype_;
  std::vector<File> file_list_;
  std::map<std::string_view, Place> places_;  // by the tensor's name, of whole tensors
  HfWeightMap weight_map_;
  int64_t total_bytes_ = 0;
};

// What a tile has of a tensor.
struct TilePart {
  int tile = 0;
  const TensorSpec* tensor = nullptr;
};

absl::Status WriteTensor(const TilePart& part, DType dtype, EmitTensor emit, ShardFiles& written) {
  const TensorSpec& tensor = *part.tensor;
  const int64_t size = DTypeBytes(WeightDType(tensor, dtype));
  const std::vector<TensorRun> runs = RunsOf(tensor);
  size_t run = 0;
  int64_t done = 0;  // bytes of the run
  return emit(part.tile, tensor, {0, tensor.elements},
              [&](const void* data, int64_t bytes) -> absl::Status {
                for (int64_t taken = 0; taken < bytes;) {
                  if (done == runs[run].elements * size) {
                    ++run;
                    done = 0;
                  }
                  const int64_t piece = std::min(bytes - taken, runs[run].elements * size - done);
                  MT_RETURN_IF_ERROR(written.Write(tensor, runs[run].source * size + done,
                                                   static_cast<const char*>(data) + taken, piece));
                  taken += piece;
                  done += piece;
                }
                return absl::OkStatus();
              });
}

// Writes a matrix whose columns lie in `parts`.
absl::Status WriteStrips(const std::vector<TilePart>& parts, DType dtype, EmitTensor emit,
                         ShardFiles& written) {
  const TensorSpec& matrix = *parts.front().tensor;
  const int64_t size = DTypeBytes(WeightDType(matrix, dtype));
  const int64_t row_bytes = matrix.shape[1] * size, rows = matrix.shape[0];
  const int64_t strip_rows = std::clamp<int64_t>(kStripBytes / row_bytes, 1, rows);
  std::vector<char> strip(static_cast<size_t>(strip_rows * row_bytes));
  for (int64_t first = 0; first < rows; first += strip_rows) {
    const int64_t last = std::min(rows, first + strip_rows);
    for (const auto& [tile, tensor] : parts) {
      const int64_t width = tensor->columns * size;  // bytes of its part of a row
      char* const begin = strip.data() + tensor->source_begin * size;
      int64_t done = 0;
      MT_RETURN_IF_ERROR(emit(tile, *tensor, {first * tensor->columns, last * tensor->columns},
                              [&](const void* data, int64_t bytes) {
                                for (int64_t taken = 0; taken < bytes;) {
                                  const int64_t at = done % width;
                                  const int64_t piece = std::min(bytes - taken, width - at);
                                  std::memcpy(begin + done / width * row_bytes + at,
                                              static_cast<const char*>(data) + taken,
                                              static_cast<size_t>(piece));
                                  taken += piece;
                                  done += piece;
                                }
                                return absl::OkStatus();
                              }));
    }
    MT_RETURN_IF_ERROR(
        written.Write(matrix, first * row_bytes, strip.data(), (last - first) * row_bytes));
  }
  return absl::OkStatus();
}

// Checks that nothing is at `path` but what an interrupted run left, which can be removed.
absl::Status CheckLeftover(FileSystem* files, const std::string& path) {
  if (!files->FileExists(path)) return absl::OkStatus();
  std::string foreign = "it is no directory";
  if (files->IsDirectory(path)) {
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListHfDirectory(files, path));
    const auto found = std::find_if_not(names.begin(), names.end(), IsHfFileName);
    if (found == names.end()) return files->CheckWritable(path);
    foreign = absl::StrCat("it holds ", *found);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is in the way and was not left by an export: ", foreign, ". Move it away"));
}

// Follows a link to a directory on another disk: that disk is meant, and the link stays.
std::string TargetOf(std::string directory, FileSystem* files) {
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  if (!files->FileExists(directory)) return directory;
  absl::StatusOr<std::string> real = files->RealPath(directory);
  return real.ok() ? *std::move(real) : directory;
}

// The names beside `target`, which nobody chooses: what is there is removed.
std::string TemporaryOf(const std::string& target) { return absl::StrCat(target, ".export-tmp"); }
std::string PreviousOf(const std::string& target) {
  return absl::StrCat(target, ".export-previous");
}

}  // namespace

absl::Status WriteHfWeights(FileSystem* files, const std::string& directory,
                            const ModelLayout& layout, DType dtype, int64_t shard_bytes,
                            EmitTensor emit, const CarriedTensors& carried) {
  const std::vector<Shard> shards = CutIntoShards(layout, dtype, shard_bytes);
  const int64_t file_count = std::ssize(shards) + (carried.names().empty() ? 0 : 1);
  ShardFiles written(files, directory, dtype);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        file_count == 1 ? kHfWeightsFileName : HfShardName(static_cast<int64_t>(i) + 1, file_count);
    MT_RETURN_IF_ERROR(written.Add(name, shards[i]));
  }
  std::map<std::string_view, std::vector<TilePart>> matrices;  // of columns in several tiles
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    for (const TensorSpec& tensor : layout.tiles[tile].tensors) {
      if (tensor.columns > 0) {
        matrices[tensor.name].push_back({tile, &tensor});
      } else {
        MT_RETURN_IF_ERROR(WriteTensor({tile, &tensor}, dtype, emit, written));
      }
    }
  }
  for (const auto& [name, parts] : matrices) {
    MT_RETURN_IF_ERROR(WriteStrips(parts, dtype, emit, written));
  }
  MT_RETURN_IF_ERROR(written.CheckWhole());
  if (file_count == 1) return absl::OkStatus();
  int64_t total_bytes = written.total_bytes();
  if (!carried.names().empty()) {
    const std::string name = HfShardName(file_count, file_count);
    for (const std::string& tensor : carried.names()) written.weight_map()[tensor] = name;
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                        carried.Write(files, JoinPath(directory, name)));
    total_bytes += writer->data_bytes();
  }
  return WriteFileSynced(files, JoinPath(directory, kHfIndexFileName),
                         MakeHfIndex(written.weight_map(), total_bytes));
}

absl::Status CheckCanReplaceDirectory(FileSystem* files, const std::string& directory) {
  const std::string target = TargetOf(directory, files);
  const std::string parent = ParentDirectory(target);
  MT_RETURN_IF_ERROR(files->CheckWritable(parent));
  const absl::StatusOr<FileInfo> own = files->Examine(target), above = files->Examine(parent);
  if (own.ok() && above.ok() && own->device != above->device) {
    return absl::FailedPreconditionError(absl::StrCat(
        target, " is a mount point, which cannot be replaced; name a directory within it"));
  }
  MT_RETURN_IF_ERROR(CheckLeftover(files, TemporaryOf(target)));
  return CheckLeftover(files, PreviousOf(target));
}

absl::Status ReplaceDirectory(FileSystem* files, const std::string& directory,
                              absl::FunctionRef<absl::Status(const std::string& temporary)> write) {
  const std::string target = TargetOf(directory, files);
  const std::string temporary = TemporaryOf(target), previous = PreviousOf(target);
  const std::string lock_path = absl::StrCat(target, ".export-lock");
  const std::string parent = ParentDirectory(target);
  MT_RETURN_IF_ERROR(files->CreateDirectories(parent));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock, files->TryLock(lock_path));
  if (lock == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(target, ": another process is writing it; wait for that one"));
  }
  const absl::Cleanup unlock = [&] { files->RemoveFile(lock_path).IgnoreError(); };
  MT_RETURN_IF_ERROR(CheckCanReplaceDirectory(files, target));
  MT_RETURN_IF_ERROR(files->RemoveTree(temporary));
  MT_RETURN_IF_ERROR(files->CreateDirectories(temporary));
  absl::Status status = write(temporary);
  if (status.ok()) status = files->SyncDirectory(temporary);
  bool moved = false;
  if (status.ok() && files->FileExists(target)) {
    status = files->RemoveTree(previous);
    if (status.ok()) status = files->Rename(target, previous);
    moved = status.ok();
  }
  if (status.ok()) status = files->Rename(temporary, target);
  if (!status.ok()) {
    // Best effort: the first error is what is reported.
    if (moved) files->Rename(previous, target).IgnoreError();
    files->RemoveTree(temporary).IgnoreError();
    return status;
  }
  MT_RETURN_IF_ERROR(files->SyncDirectory(parent));
  // Also what a crash between the two renamings left. The new one is there in any case.
  files->RemoveTree(previous).IgnoreError();
  return absl::OkStatus();
}

}  // namespace megatrain

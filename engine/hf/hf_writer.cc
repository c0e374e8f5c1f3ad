#include "engine/hf/hf_writer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/master_convert.h"

namespace megatrain {
namespace {

struct Item {
  int tile;
  const TensorSpec* tensor;
};
// The parts of a whole tensor in their order; most have one.
using Parts = std::vector<Item>;

// Returns the tensors of the model, ordered by their first parts.
std::vector<Parts> WholeTensors(const ModelLayout& layout) {
  std::vector<Parts> tensors;
  std::map<std::string_view, size_t> begun;  // of those with several parts
  ForEachTensor(layout, [&](int tile, const TensorSpec& tensor) {
    if (tensor.elements < tensor.whole_elements()) {
      const auto [place, is_new] = begun.insert({tensor.name, tensors.size()});
      if (!is_new) {
        tensors[place->second].push_back({tile, &tensor});
        return;
      }
    }
    tensors.push_back({{tile, &tensor}});
  });
  return tensors;
}

// An upper bound of a tensor's entry in the header, name apart: keys, punctuation, dtype (80
// bytes), a shape and two offsets of 20 digits each.
constexpr int64_t kHeaderEntryBytes = 160;
// Length, __metadata__, padding.
constexpr int64_t kHeaderFixedBytes = 64;

std::vector<std::vector<Parts>> CutIntoShards(const ModelLayout& layout, DType dtype,
                                              int64_t shard_bytes) {
  std::vector<std::vector<Parts>> shards(1);
  int64_t bytes = kHeaderFixedBytes;
  for (Parts& parts : WholeTensors(layout)) {
    const TensorSpec& tensor = *parts.front().tensor;
    const int64_t more = tensor.whole_elements() * DTypeBytes(WeightDType(tensor, dtype)) +
                         kHeaderEntryBytes + static_cast<int64_t>(tensor.name_on_disk().size());
    if (!shards.back().empty() && bytes + more > shard_bytes) {
      shards.emplace_back();
      bytes = kHeaderFixedBytes;
    }
    bytes += more;
    shards.back().push_back(std::move(parts));
  }
  for (std::vector<Parts>& shard : shards) {
    std::stable_partition(shard.begin(), shard.end(),
                          [](const Parts& parts) { return parts.front().tensor->is_buffer; });
  }
  return shards;
}

// Checks that nothing is at `path` but what an interrupted run left, which may be removed.
absl::Status CheckLeftover(FileSystem* files, const std::string& path) {
  if (!files->FileExists(path)) return absl::OkStatus();
  std::string foreign = "it is no directory";
  if (files->IsDirectory(path)) {
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListHfDirectory(files, path));
    const auto found = std::find_if_not(names.begin(), names.end(), IsHfFileName);
    if (found == names.end()) return absl::OkStatus();
    foreign = absl::StrCat("it holds ", *found);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is in the way and was not left by an export: ", foreign, ". Move it away"));
}

}  // namespace

absl::Status WriteHfWeights(
    FileSystem* files, const std::string& directory, const ModelLayout& layout, DType dtype,
    int64_t shard_bytes,
    absl::FunctionRef<absl::Status(int tile, const TensorSpec& tensor, SafetensorsWriter* writer)>
        emit,
    const CarriedTensors& carried) {
  const std::vector<std::vector<Parts>> shards = CutIntoShards(layout, dtype, shard_bytes);
  const auto file_count = static_cast<int64_t>(shards.size() + (carried.names().empty() ? 0 : 1));
  HfWeightMap weight_map;
  int64_t total_bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        file_count == 1 ? kHfWeightsFileName : HfShardName(static_cast<int64_t>(i) + 1, file_count);
    std::vector<SafetensorsDeclaration> tensors;
    for (const Parts& parts : shards[i]) {
      const TensorSpec& tensor = *parts.front().tensor;
      const std::string& stored = tensor.name_on_disk();
      tensors.push_back({stored, DTypeName(WeightDType(tensor, dtype)), tensor.shape});
      weight_map[stored] = name;
    }
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                        SafetensorsWriter::Create(files, JoinPath(directory, name), tensors));
    for (const Parts& parts : shards[i]) {
      for (const Item& item : parts) {
        MT_RETURN_IF_ERROR(emit(item.tile, *item.tensor, writer.get()));
      }
    }
    MT_RETURN_IF_ERROR(writer->Finish());
    total_bytes += writer->data_bytes();
  }
  if (file_count == 1) return absl::OkStatus();
  if (!carried.names().empty()) {
    const std::string name = HfShardName(file_count, file_count);
    for (const std::string& tensor : carried.names()) weight_map[tensor] = name;
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                        carried.Write(files, JoinPath(directory, name)));
    total_bytes += writer->data_bytes();
  }
  return WriteFileSynced(files, JoinPath(directory, kHfIndexFileName),
                         MakeHfIndex(weight_map, total_bytes));
}

absl::Status ReplaceDirectory(FileSystem* files, const std::string& directory,
                              absl::FunctionRef<absl::Status(const std::string& temporary)> write) {
  const std::string temporary = absl::StrCat(directory, ".tmp");
  const std::string previous = absl::StrCat(directory, ".previous");
  const std::string parent = ParentDirectory(directory);
  MT_RETURN_IF_ERROR(files->CreateDirectories(parent));
  MT_RETURN_IF_ERROR(CheckLeftover(files, temporary));
  MT_RETURN_IF_ERROR(CheckLeftover(files, previous));
  MT_RETURN_IF_ERROR(files->RemoveTree(temporary));
  MT_RETURN_IF_ERROR(files->CreateDirectories(temporary));
  absl::Status status = write(temporary);
  if (status.ok()) status = files->SyncDirectory(temporary);
  bool moved = false;
  if (status.ok() && files->FileExists(directory)) {
    status = files->RemoveTree(previous);
    if (status.ok()) status = files->Rename(directory, previous);
    moved = status.ok();
  }
  if (status.ok()) status = files->Rename(temporary, directory);
  if (!status.ok()) {
    // Best effort: the first error is what is reported.
    if (moved) files->Rename(previous, directory).IgnoreError();
    files->RemoveTree(temporary).IgnoreError();
    return status;
  }
  MT_RETURN_IF_ERROR(files->SyncDirectory(parent));
  // Also what a crash between the two renamings left.
  return files->RemoveTree(previous);
}

}  // namespace megatrain

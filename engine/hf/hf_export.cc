#include "engine/hf/hf_export.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/hf/carried_tensors.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_writer.h"
#include "engine/hf/master_convert.h"

namespace megatrain {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;

bool SameTensors(const ModelLayout& a, const ModelLayout& b) {
  const auto signature = [](const ModelLayout& layout) {
    // Sorted, because their order depends on what is frozen; parts of a tensor count once.
    std::set<std::pair<std::string, std::vector<int64_t>>> tensors;
    ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
      tensors.insert({tensor.name_on_disk(), tensor.shape});
    });
    return tensors;
  };
  return signature(a) == signature(b);
}

bool SameFile(FileSystem* files, const std::string& a, const std::string& b) {
  const absl::StatusOr<FileInfo> first = files->Examine(a);
  const absl::StatusOr<FileInfo> second = files->Examine(b);
  return first.ok() && second.ok() && first->device == second->device &&
         first->inode == second->inode;
}

// Nothing there, an empty directory, or an earlier export of a model of these tensors.
absl::Status CheckReplaceable(FileSystem* files, const std::string& directory,
                              const ModelLayout& layout) {
  if (!files->FileExists(directory)) return absl::OkStatus();
  const auto refuse = [&](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " is not replaced: ", why,
                     ". Give another output directory, or empty this one"));
  };
  if (!files->IsDirectory(directory)) return refuse("it is not a directory");
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListHfDirectory(files, directory));
  if (names.empty()) return absl::OkStatus();
  for (const std::string& name : names) {
    if (!IsHfFileName(name)) {
      return refuse(absl::StrCat("it holds ", name, ", which no export writes"));
    }
  }
  const absl::StatusOr<ModelDescription> config = ReadModelDescription(directory, files);
  if (!config.ok()) {
    return refuse(absl::StrCat("it holds files of a model but no configuration that can be read (",
                               std::string(config.status().message()), ")"));
  }
  if (!SameTensors(BuildModelLayout(*config), layout)) return refuse("it holds another model");
  return absl::OkStatus();
}

absl::Status GiveTensor(const Tile& tile, const TensorSpec& tensor, ElementRange part, DType dtype,
                        TensorSink sink) {
  const Tile place = TensorTile(tile, tensor);
  dtype = WeightDType(tensor, dtype);
  const int64_t size = DTypeBytes(dtype);
  std::vector<char> chunk;
  for (const TensorRun& run : RunsOf(tensor, part)) {
    if (place.weight_dtype == dtype) {
      MT_RETURN_IF_ERROR(
          sink(static_cast<const char*>(place.WeightsAt(run.place)), run.elements * size));
      continue;
    }
    chunk.resize(std::min(run.elements, kChunkElements) * size);
    for (int64_t done = 0; done < run.elements;) {
      const int64_t elements = std::min(run.elements - done, kChunkElements);
      LoadMaster(place, run.place + done, elements, dtype, chunk.data());
      MT_RETURN_IF_ERROR(sink(chunk.data(), elements * size));
      done += elements;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExportTarget(const std::string& source, const ModelLayout& layout,
                               const std::string& directory, FileSystem* files) {
  if (SameFile(files, source, directory)) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     " is the directory that the model was read from; it is not "
                     "overwritten. Give another output directory"));
  }
  MT_RETURN_IF_ERROR(CheckReplaceable(files, directory, layout));
  return CheckCanReplaceDirectory(files, directory);
}

absl::Status ExportHfDirectory(const HfSideFiles& source, const ModelLayout& layout,
                               DType weight_dtype,
                               absl::FunctionRef<absl::StatusOr<Tile>(int)> get_tile,
                               const std::string& directory, int64_t shard_bytes, FileSystem* files,
                               const GiveColumns& give_columns) {
  MT_RETURN_IF_ERROR(CheckExportTarget(source.directory, layout, directory, files));
  MT_ASSIGN_OR_RETURN(
      const CarriedTensors carried,
      CarriedTensors::Open(files, source.directory, layout.model.wrapper, source.carried_digest));
  return ReplaceDirectory(files, directory, [&](const std::string& temporary) -> absl::Status {
    MT_RETURN_IF_ERROR(CopyHfSideFiles(files, source, weight_dtype, temporary).status());
    int current = -1;
    Tile tile;
    return WriteHfWeights(
        files, temporary, layout, weight_dtype, shard_bytes,
        [&](int index, const TensorSpec& tensor, ElementRange part, TensorSink sink) {
          if (tensor.columns > 0 && give_columns != nullptr) {
            return give_columns(tensor, part, sink);
          }
          if (index != current) {
            absl::StatusOr<Tile> next = get_tile(index);
            if (!next.ok()) return next.status();
            tile = *next;
            current = index;
          }
          return GiveTensor(tile, tensor, part, weight_dtype, sink);
        },
        carried);
  });
}

}  // namespace megatrain

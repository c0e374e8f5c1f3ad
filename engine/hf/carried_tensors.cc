#include "engine/hf/carried_tensors.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/hf/config/wrapper_family.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/weight_files.h"
#include "engine/model/model_layout.h"

namespace megatrain {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

// Returns the line that tells one kind of tensor from another.
std::string DeclarationText(const SafetensorsTensor& tensor) {
  return absl::StrCat(tensor.name, " ", tensor.dtype, " ", ShapeText(tensor.shape), "\n");
}

absl::Status HasChanged(const std::string& directory, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat(directory, ": ", what,
                   " when the model was read; they are carried into checkpoints and exports: "
                   "restore them"));
}

// Adds to the error of a missing file what it is needed for.
absl::Status NeededFor(const std::string& family, const absl::Status& status) {
  if (!absl::IsNotFound(status)) return status;
  return absl::NotFoundError(absl::StrCat(
      status.message(), "; the tensors beside the text model of ", family,
      " are carried from the directory's files into checkpoints and exports: restore them"));
}

}  // namespace

absl::StatusOr<CarriedTensors> CarriedTensors::Open(FileSystem* files, const std::string& directory,
                                                    const WrapperDescription& wrapper,
                                                    const std::string& digest) {
  CarriedTensors carried;
  if (wrapper.carried_tensors == 0) return carried;
  MT_RETURN_IF_ERROR(NeededFor(wrapper.family, CheckHfWeightFilesExist(files, directory)));
  MT_ASSIGN_OR_RETURN(const HfWeightFiles found, FindHfWeightFiles(files, directory));
  int64_t bytes = 0;
  std::set<std::string> declarations;
  for (const std::string& path : found.paths) {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(files, path));
    for (const SafetensorsTensor& tensor : reader->header().tensors) {
      if (!wrapper.Carries(tensor.name)) continue;
      carried.sources_[path].push_back(tensor);
      carried.names_.push_back(tensor.name);
      declarations.insert(DeclarationText(tensor));
      bytes += tensor.bytes();
    }
  }
  const int64_t count = std::ssize(carried.names_);
  if (count != wrapper.carried_tensors || bytes != wrapper.carried_bytes) {
    return HasChanged(directory, absl::StrCat("has ", count, " tensors (", FormatBytes(bytes),
                                              ") beside the text model of ", wrapper.family,
                                              ", and had ", wrapper.carried_tensors, " (",
                                              FormatBytes(wrapper.carried_bytes), ")"));
  }
  carried.digest_ = HashBytes(absl::StrJoin(declarations, ""));
  if (!digest.empty() && carried.digest_ != digest) {
    return HasChanged(directory, absl::StrCat("the tensors beside the text model of ",
                                              wrapper.family, " had other names, types or shapes"));
  }
  return carried;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> CarriedTensors::Write(
    FileSystem* files, const std::string& path) const {
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [source, tensors] : sources_) {
    for (const SafetensorsTensor& tensor : tensors) {
      declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> writer,
                      SafetensorsWriter::Create(files, path, declarations));
  std::vector<char> chunk(kChunkBytes);
  for (const auto& [source, tensors] : sources_) {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(files, source));
    for (const SafetensorsTensor& wanted : tensors) {
      const SafetensorsTensor* const tensor = reader->Find(wanted.name);
      if (tensor == nullptr || DeclarationText(*tensor) != DeclarationText(wanted)) {
        return HasChanged(source, absl::StrCat("tensor \"", wanted.name, "\" was another one"));
      }
      for (int64_t done = 0; done < tensor->bytes();) {
        const int64_t bytes = std::min(tensor->bytes() - done, kChunkBytes);
        MT_RETURN_IF_ERROR(reader->Read(*tensor, done, chunk.data(), bytes));
        MT_RETURN_IF_ERROR(writer->Append(chunk.data(), bytes));
        done += bytes;
      }
    }
  }
  MT_RETURN_IF_ERROR(writer->Finish());
  return writer;
}

absl::Status CompleteWrapper(FileSystem* files, const std::string& directory,
                             ModelDescription& model) {
  const WrapperFamily* const family = FindWrapperFamily(model.wrapper.family);
  if (absl::IsNotFound(CheckHfWeightFilesExist(files, directory))) {
    // config.json alone, or with an index without its files, is enough for a plan.
    const absl::StatusOr<HfWeightFiles> found = FindHfWeightFiles(files, directory);
    for (const WrapperNames& names : family->names) {
      const std::string head = DescribeWrapper(*family, names).OnDisk(kHeadTensorName);
      if (found.ok() && found->weight_map.contains(head)) model.tied_embeddings = false;
    }
    return absl::OkStatus();
  }
  MT_ASSIGN_OR_RETURN(const StoredTensors stored, StoredTensors::Open(files, directory));
  std::string first;  // a tensor of the text model
  for (const WrapperNames& names : family->names) {
    const auto found = stored.by_name().lower_bound(names.model_prefix);
    if (found == stored.by_name().end() || !found->first.starts_with(names.model_prefix)) continue;
    if (!first.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, ": tensors \"", first, "\" and \"", found->first,
                       "\" are named in two ways; all names must begin with ",
                       family->names[0].model_prefix, " or all with ", names.model_prefix));
    }
    first = found->first;
    model.wrapper = DescribeWrapper(*family, names);
  }
  for (const auto& [name, place] : stored.by_name()) {
    if (!model.wrapper.Carries(name)) continue;
    ++model.wrapper.carried_tensors;
    model.wrapper.carried_bytes += place.tensor->bytes();
  }
  const StoredTensor* const embedding = stored.Find(model.wrapper.OnDisk(kEmbeddingTensorName));
  const StoredTensor* const head = stored.Find(model.wrapper.OnDisk(kHeadTensorName));
  if (model.tied_embeddings && embedding != nullptr && head != nullptr) {
    // HfWeights compares the whole where the beginning is equal.
    MT_ASSIGN_OR_RETURN(model.tied_embeddings, SameBytes(*embedding, *head, 0, kChunkBytes));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

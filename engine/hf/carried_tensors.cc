#include "engine/hf/carried_tensors.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/hf/config/wrapper_family.h"
#include "engine/hf/hf_format.h"

namespace megatrain {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

struct Place {
  const SafetensorsReader* reader;
  const SafetensorsTensor* tensor;
};

absl::StatusOr<std::vector<std::unique_ptr<SafetensorsReader>>> OpenWeightFiles(
    FileSystem* files, const std::string& directory) {
  MT_ASSIGN_OR_RETURN(const HfWeightFiles found, FindHfWeightFiles(files, directory));
  std::vector<std::unique_ptr<SafetensorsReader>> readers;
  for (const std::string& path : found.paths) {
    MT_ASSIGN_OR_RETURN(readers.emplace_back(), SafetensorsReader::Open(files, path));
  }
  return readers;
}

// Looks at the beginning: HfWeights compares the whole where that is equal.
absl::StatusOr<bool> SameBeginning(const Place& a, const Place& b) {
  if (a.tensor->dtype != b.tensor->dtype || a.tensor->shape != b.tensor->shape) return false;
  const int64_t bytes = std::min(a.tensor->bytes(), kChunkBytes);
  std::vector<char> left(bytes), right(bytes);
  MT_RETURN_IF_ERROR(a.reader->Read(*a.tensor, 0, left.data(), bytes));
  MT_RETURN_IF_ERROR(b.reader->Read(*b.tensor, 0, right.data(), bytes));
  return left == right;
}

}  // namespace

absl::StatusOr<CarriedTensors> CarriedTensors::Open(FileSystem* files, const std::string& directory,
                                                    const WrapperDescription& wrapper) {
  CarriedTensors carried;
  if (wrapper.carried_tensors == 0) return carried;
  MT_ASSIGN_OR_RETURN(carried.readers_, OpenWeightFiles(files, directory));
  int64_t bytes = 0;
  for (const auto& reader : carried.readers_) {
    for (const SafetensorsTensor& tensor : reader->header().tensors) {
      if (!wrapper.Carries(tensor.name)) continue;
      carried.sources_.push_back({reader.get(), &tensor});
      carried.names_.push_back(tensor.name);
      bytes += tensor.bytes();
    }
  }
  const auto count = static_cast<int64_t>(carried.sources_.size());
  if (count != wrapper.carried_tensors || bytes != wrapper.carried_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, ": has ", count, " tensors (", FormatBytes(bytes), ") beside the text model of ",
        wrapper.family, ", and had ", wrapper.carried_tensors, " (",
        FormatBytes(wrapper.carried_bytes),
        ") when the model was read; they are carried into checkpoints and exports: restore them"));
  }
  return carried;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> CarriedTensors::Write(
    FileSystem* files, const std::string& path) const {
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [reader, tensor] : sources_) {
    declarations.push_back({tensor->name, tensor->dtype, tensor->shape});
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> writer,
                      SafetensorsWriter::Create(files, path, declarations));
  std::vector<char> chunk(kChunkBytes);
  for (const auto& [reader, tensor] : sources_) {
    for (int64_t done = 0; done < tensor->bytes();) {
      const int64_t bytes = std::min(tensor->bytes() - done, kChunkBytes);
      MT_RETURN_IF_ERROR(reader->Read(*tensor, done, chunk.data(), bytes));
      MT_RETURN_IF_ERROR(writer->Append(chunk.data(), bytes));
      done += bytes;
    }
  }
  MT_RETURN_IF_ERROR(writer->Finish());
  return writer;
}

absl::Status ReadWrapperNames(FileSystem* files, const std::string& directory,
                              ModelDescription& model) {
  const WrapperFamily* const family = FindWrapperFamily(model.wrapper.family);
  const auto readers = OpenWeightFiles(files, directory);
  if (absl::IsNotFound(readers.status())) {
    // config.json alone, or with an index without its files, is enough for a plan.
    const absl::StatusOr<HfWeightFiles> found = FindHfWeightFiles(files, directory);
    for (const WrapperNames& names : family->names) {
      const std::string head = DescribeWrapper(*family, names).OnDisk("lm_head.weight");
      if (found.ok() && found->weight_map.contains(head)) model.tied_embeddings = false;
    }
    return absl::OkStatus();
  }
  if (!readers.ok()) return readers.status();
  std::map<std::string, Place> places;
  for (const auto& reader : *readers) {
    for (const SafetensorsTensor& tensor : reader->header().tensors) {
      places[tensor.name] = {reader.get(), &tensor};
    }
  }
  std::string first;  // a tensor of the text model
  for (const WrapperNames& names : family->names) {
    const auto found = places.lower_bound(names.model_prefix);
    if (found == places.end() || !found->first.starts_with(names.model_prefix)) continue;
    if (!first.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, ": tensors \"", first, "\" and \"", found->first,
                       "\" are named in two ways; all names must begin with ",
                       family->names[0].model_prefix, " or all with ", names.model_prefix));
    }
    first = found->first;
    model.wrapper = DescribeWrapper(*family, names);
  }
  for (const auto& [name, place] : places) {
    if (!model.wrapper.Carries(name)) continue;
    ++model.wrapper.carried_tensors;
    model.wrapper.carried_bytes += place.tensor->bytes();
  }
  const auto embedding = places.find(model.wrapper.OnDisk("model.embed_tokens.weight"));
  const auto head = places.find(model.wrapper.OnDisk("lm_head.weight"));
  if (model.tied_embeddings && embedding != places.end() && head != places.end()) {
    MT_ASSIGN_OR_RETURN(model.tied_embeddings, SameBeginning(embedding->second, head->second));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

#include "engine/hf/weight_files.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/hf/config/ignored_tensors.h"
#include "engine/hf/experts/mxfp4.h"
#include "engine/hf/hf_format.h"

namespace megatrain {
namespace {

// Two tensors are compared in pieces of this size.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr char kBlocksSuffix[] = "_blocks";
constexpr char kScalesSuffix[] = "_scales";
// A message names this many tensors; of the rest it gives the number.
constexpr size_t kProblemsNamedMax = 5;

std::optional<FileDType> ParseFileDType(const std::string& name) {
  if (name == "F32") return FileDType::kF32;
  if (name == "F16") return FileDType::kF16;
  if (name == "BF16") return FileDType::kBF16;
  return std::nullopt;
}

// Returns true for tensors that old files carry although they follow from the configuration.
bool IsKnownBuffer(const std::string& name) { return absl::EndsWith(name, "rotary_emb.inv_freq"); }

// Finds each tensor of a layout among those in the files. Each Find... returns what is wrong, "" if
// nothing is.
class Finder {
 public:
  Finder(const ModelLayout& layout, const std::map<std::string, StoredTensor>& stored)
      : layout_(layout), stored_(stored) {}

  std::vector<std::string> FindAll(std::map<std::string, WeightSource>& sources) {
    std::vector<std::string> problems;
    ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
      const auto [source, is_new] = sources.insert({tensor.name, {}});
      if (!is_new) return;  // another part
      std::string problem = Find(layout_.tiles[tile], tensor, source->second);
      if (!problem.empty()) problems.push_back(std::move(problem));
    });
    const WrapperDescription& wrapper = layout_.model.wrapper;
    std::set<std::string> names;
    for (const auto& [name, stored] : stored_) names.insert(name);
    const std::map<std::string, std::string> ignored = FindIgnoredTensors(layout_.model, names);
    for (const std::string& name : names) {
      // With tied embeddings the head is the embedding; HfWeights compares its duplicate.
      const bool tied_head =
          layout_.model.tied_embeddings && name == wrapper.OnDisk(kHeadTensorName);
      if (used_.contains(name) || tied_head || IsKnownBuffer(name) || ignored.contains(name) ||
          wrapper.Carries(name)) {
        continue;
      }
      problems.push_back(
          absl::StrCat("tensor \"", name, "\" does not belong to this model (config.json: ",
                       layout_.model.family, ", ", layout_.model.layer_count(), " layers",
                       layout_.model.tied_embeddings ? ", tied embeddings" : "", ")"));
    }
    return problems;
  }

 private:
  std::string Find(const TileLayout& tile, const TensorSpec& tensor, WeightSource& source) {
    const auto whole = stored_.find(tensor.name_on_disk());
    if (whole != stored_.end()) {
      used_.insert(tensor.name_on_disk());
      source.parts.push_back({.stored = whole->second});
      return Check(whole->second.tensor->shape, tensor, source);
    }
    const size_t dimension = tensor.columns > 0 ? 1 : 0;
    const std::map<int64_t, StoredTensor> parts = PartsOf(tensor.name_on_disk(), dimension);
    if (!parts.empty()) return FindParts(parts, tensor, dimension, source);
    const bool transposed =
        tile.layer >= 0 && layout_.model.layers[tile.layer].experts.transposed();
    if (transposed && stored_.contains(tensor.name_on_disk() + kBlocksSuffix)) {
      return FindMxfp4(tensor, source);
    }
    return absl::StrCat("tensor \"", tensor.name_on_disk(), "\" is missing");
  }

  // `shape` is that of the whole tensor in the files.
  static std::string Check(const std::vector<int64_t>& shape, const TensorSpec& tensor,
                           WeightSource& source) {
    if (shape != tensor.shape) {
      return absl::StrCat("tensor \"", tensor.name_on_disk(), "\" has shape ", ShapeText(shape),
                          ", config.json says ", ShapeText(tensor.shape));
    }
    for (WeightSource::Part& part : source.parts) {
      const std::optional<FileDType> dtype = ParseFileDType(part.stored.tensor->dtype);
      if (!dtype) {
        return absl::StrCat("tensor \"", tensor.name_on_disk(), "\" has dtype ",
                            part.stored.tensor->dtype, "; F32, F16 and BF16 can be trained");
      }
      part.dtype = *dtype;
    }
    return "";
  }

  // Returns the parts of the tensor by their first rows (HfPartName) or, for dimension 1, columns
  // (HfColumnsName).
  std::map<int64_t, StoredTensor> PartsOf(const std::string& name, size_t dimension) const {
    std::map<int64_t, StoredTensor> parts;
    const std::string prefix = name + (dimension == 0 ? "[" : "[:,");
    for (auto stored = stored_.lower_bound(prefix);
         stored != stored_.end() && absl::StartsWith(stored->first, prefix); ++stored) {
      const std::string digits = stored->first.substr(prefix.size());
      int64_t begin = 0;
      if (absl::SimpleAtoi(digits.substr(0, digits.find(':')), &begin)) {
        parts[begin] = stored->second;
      }
    }
    return parts;
  }

  // The parts follow one another in `dimension`, and agree in the others.
  std::string FindParts(const std::map<int64_t, StoredTensor>& parts, const TensorSpec& tensor,
                        size_t dimension, WeightSource& source) {
    std::vector<int64_t> shape;  // of the parts so far, together
    for (const auto& [begin, stored] : parts) used_.insert(stored.tensor->name);
    const std::string& whole = tensor.name_on_disk();
    const int64_t all = tensor.shape.size() > dimension ? tensor.shape[dimension] : 0;
    for (const auto& [begin, stored] : parts) {
      const auto& [name, own, elements] =
          std::tie(stored.tensor->name, stored.tensor->shape, stored.tensor->elements);
      const int64_t size = own.size() > dimension ? own[dimension] : 0;
      const int64_t end = begin <= all && size <= all ? begin + size : -1;
      std::vector<int64_t> others = own;
      if (size > 0 && !shape.empty()) others[dimension] = shape[dimension];
      if (size <= 0 || size > all || begin > all ||
          begin != (shape.empty() ? 0 : shape[dimension]) ||
          name !=
              (dimension == 0 ? HfPartName(whole, begin, end) : HfColumnsName(whole, begin, end)) ||
          (!shape.empty() && others != shape)) {
        return absl::StrCat("tensor \"", name, "\" of shape ", ShapeText(own),
                            " does not go on where the part of \"", whole, "\" before it ends");
      }
      shape = own;
      shape[dimension] = end;
      if (dimension == 0) {
        source.parts.push_back({.begin = begin * (elements / size), .stored = stored});
      } else {
        source.parts.push_back({.begin = begin, .columns = size, .stored = stored});
      }
    }
    if (dimension == 1 && shape.size() != 2) {
      return absl::StrCat("tensor \"", whole, "\" lies in parts of columns but is no matrix");
    }
    return Check(shape, tensor, source);
  }

  std::string FindMxfp4(const TensorSpec& tensor, WeightSource& source) {
    std::vector<int64_t> shape = tensor.shape;
    used_.insert({tensor.name_on_disk() + kBlocksSuffix, tensor.name_on_disk() + kScalesSuffix});
    if (shape.size() != 3 || shape[1] % kMxfp4BlockValues != 0) {
      return absl::StrCat("tensor \"", tensor.name_on_disk(), kBlocksSuffix, "\" cannot hold ",
                          ShapeText(shape), ": the last but one size is no multiple of the ",
                          kMxfp4BlockValues, " values of an MXFP4 block");
    }
    shape = {shape[0], shape[2], shape[1] / kMxfp4BlockValues};
    std::string problem = FindBytes(tensor.name_on_disk() + kScalesSuffix, shape, source.scales);
    shape.push_back(kMxfp4BlockBytes);
    if (problem.empty())
      problem = FindBytes(tensor.name_on_disk() + kBlocksSuffix, shape, source.blocks);
    return problem;
  }

  std::string FindBytes(const std::string& name, const std::vector<int64_t>& shape,
                        StoredTensor& source) {
    const auto found = stored_.find(name);
    if (found == stored_.end()) return absl::StrCat("tensor \"", name, "\" is missing");
    source = found->second;
    if (source.tensor->dtype == "U8" && source.tensor->shape == shape) return "";
    return absl::StrCat("tensor \"", name, "\" has shape ", ShapeText(source.tensor->shape), " of ",
                        source.tensor->dtype, ", config.json says ", ShapeText(shape), " of U8");
  }

  const ModelLayout& layout_;
  const std::map<std::string, StoredTensor>& stored_;
  std::set<std::string> used_;  // names in the files
};

}  // namespace

absl::StatusOr<bool> SameBytes(const StoredTensor& a, const StoredTensor& b, int64_t begin,
                               int64_t end) {
  if (a.tensor->dtype != b.tensor->dtype || a.tensor->shape != b.tensor->shape) return false;
  std::vector<char> left(kChunkBytes), right(kChunkBytes);
  bool same = true;
  end = std::min(a.tensor->bytes(), end);
  for (int64_t done = begin; same && done < end;) {
    const int64_t bytes = std::min(end - done, kChunkBytes);
    MT_RETURN_IF_ERROR(a.reader->Read(*a.tensor, done, left.data(), bytes));
    MT_RETURN_IF_ERROR(b.reader->Read(*b.tensor, done, right.data(), bytes));
    same = std::equal(left.begin(), left.begin() + bytes, right.begin());
    done += bytes;
  }
  return same;
}

absl::StatusOr<StoredTensors> StoredTensors::Open(FileSystem* files, const std::string& directory) {
  MT_ASSIGN_OR_RETURN(const HfWeightFiles found, FindHfWeightFiles(files, directory));
  StoredTensors tensors;
  for (const std::string& path : found.paths) {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(files, path));
    const SafetensorsReader& opened = *tensors.readers_.emplace_back(std::move(reader));
    for (const SafetensorsTensor& tensor : opened.header().tensors) {
      const auto [place, is_new] = tensors.by_name_.insert({tensor.name, {&opened, &tensor}});
      if (!is_new) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor \"", tensor.name,
                         "\" is in two files: ", place->second.reader->path(), " and ", path));
      }
    }
  }
  for (const auto& [name, file] : found.weight_map) {
    const StoredTensor* const stored = tensors.Find(name);
    const std::string path = JoinPath(directory, file);
    if (stored == nullptr || stored->reader->path() != path) {
      return absl::InvalidArgumentError(
          absl::StrCat(found.index, ": tensor \"", name, "\" is not in ", path));
    }
  }
  return tensors;
}

absl::StatusOr<std::string> DescribeIgnoredTensors(FileSystem* files, const std::string& directory,
                                                   const ModelDescription& model) {
  const absl::StatusOr<std::set<std::string>> names = ReadHfTensorNames(files, directory);
  if (absl::IsNotFound(names.status())) return "";  // a configuration alone
  if (!names.ok()) return names.status();
  return DescribeIgnoredTensors(model, *names);
}

const StoredTensor* StoredTensors::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::unique_ptr<WeightFiles>> WeightFiles::Open(FileSystem* files,
                                                               const std::string& directory,
                                                               const ModelLayout& layout) {
  auto opened = std::make_unique<WeightFiles>();
  MT_ASSIGN_OR_RETURN(opened->stored_, StoredTensors::Open(files, directory));
  const std::vector<std::string> problems =
      Finder(layout, opened->stored_.by_name()).FindAll(opened->sources_);
  if (problems.empty()) return opened;
  const size_t named = std::min(problems.size(), kProblemsNamedMax);
  std::string text = absl::StrJoin(problems.begin(), problems.begin() + named, "; ");
  if (problems.size() > named) {
    absl::StrAppend(&text, "; and ", problems.size() - named, " more tensors like these");
  }
  return absl::InvalidArgumentError(absl::StrCat(directory, ": ", text));
}

}  // namespace megatrain

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
#include "engine/hf/experts/mxfp4.h"
#include "engine/hf/hf_format.h"

namespace megatrain {
namespace {

constexpr char kHeadName[] = "lm_head.weight";
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

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
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
    for (const auto& [name, stored] : stored_) {
      // With tied embeddings the head is the embedding; HfWeights compares its duplicate.
      const bool tied_head = layout_.model.tied_embeddings && name == wrapper.OnDisk(kHeadName);
      if (used_.contains(name) || tied_head || IsKnownBuffer(name) || IsOfLaterPredictor(name) ||
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
      source.parts.push_back({0, whole->second});
      return Check(whole->second.tensor->shape, tensor, source);
    }
    const std::map<int64_t, StoredTensor> parts = PartsOf(tensor.name_on_disk());
    if (!parts.empty()) return FindParts(parts, tensor, source);
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

  // Returns the parts of the tensor by their first rows (HfPartName).
  std::map<int64_t, StoredTensor> PartsOf(const std::string& name) const {
    std::map<int64_t, StoredTensor> parts;
    const std::string prefix = name + "[";
    for (auto stored = stored_.lower_bound(prefix);
         stored != stored_.end() && absl::StartsWith(stored->first, prefix); ++stored) {
      const std::string digits = stored->first.substr(prefix.size());
      int64_t row = 0;
      if (absl::SimpleAtoi(digits.substr(0, digits.find(':')), &row)) parts[row] = stored->second;
    }
    return parts;
  }

  std::string FindParts(const std::map<int64_t, StoredTensor>& parts, const TensorSpec& tensor,
                        WeightSource& source) {
    std::vector<int64_t> shape;
    for (const auto& [row, stored] : parts) used_.insert(stored.tensor->name);
    const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape.front();
    for (const auto& [row, stored] : parts) {
      const auto& [name, own, elements] =
          std::tie(stored.tensor->name, stored.tensor->shape, stored.tensor->elements);
      if (own.empty() || own[0] <= 0 || own[0] > rows || row > rows ||
          row != (shape.empty() ? 0 : shape[0]) ||
          name != HfPartName(tensor.name_on_disk(), row, row + own[0]) ||
          (!shape.empty() &&
           !std::equal(shape.begin() + 1, shape.end(), own.begin() + 1, own.end()))) {
        return absl::StrCat("tensor \"", name, "\" of shape ", ShapeText(own),
                            " does not go on where the part of \"", tensor.name_on_disk(),
                            "\" before it ends");
      }
      shape = own;
      shape[0] += row;
      source.parts.push_back({row * (elements / own[0]), stored});
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

  // Heads that predict tokens after the next one (DeepSeek V3, GLM-4.5) lie in layers behind the
  // model's. transformers passes over them too.
  bool IsOfLaterPredictor(const std::string& name) const {
    const std::string prefix = layout_.model.wrapper.OnDisk("model.layers.");
    if (!absl::StartsWith(name, prefix)) return false;
    const std::string number =
        name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size());
    int64_t layer = 0;
    return absl::SimpleAtoi(number, &layer) && layer >= layout_.model.layer_count() &&
           stored_.contains(absl::StrCat(prefix, number, ".eh_proj.weight"));
  }

  const ModelLayout& layout_;
  const std::map<std::string, StoredTensor>& stored_;
  std::set<std::string> used_;  // names in the files
};

}  // namespace

absl::Status WeightFiles::OpenAll(FileSystem* files, const std::string& directory) {
  MT_ASSIGN_OR_RETURN(const HfWeightFiles found, FindHfWeightFiles(files, directory));
  for (const std::string& path : found.paths) {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(files, path));
    readers_.push_back(std::move(reader));
    for (const SafetensorsTensor& tensor : readers_.back()->header().tensors) {
      const auto [place, is_new] = stored_.insert({tensor.name, {readers_.back().get(), &tensor}});
      if (!is_new) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor \"", tensor.name,
                         "\" is in two files: ", place->second.reader->path(), " and ", path));
      }
    }
  }
  for (const auto& [name, file] : found.weight_map) {
    const StoredTensor* const stored = Find(name);
    const std::string path = JoinPath(directory, file);
    if (stored == nullptr || stored->reader->path() != path) {
      return absl::InvalidArgumentError(
          absl::StrCat(found.index, ": tensor \"", name, "\" is not in ", path));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightFiles>> WeightFiles::Open(FileSystem* files,
                                                               const std::string& directory,
                                                               const ModelLayout& layout) {
  auto opened = std::make_unique<WeightFiles>();
  MT_RETURN_IF_ERROR(opened->OpenAll(files, directory));
  const std::vector<std::string> problems =
      Finder(layout, opened->stored_).FindAll(opened->sources_);
  if (problems.empty()) return opened;
  const size_t named = std::min(problems.size(), kProblemsNamedMax);
  std::string text = absl::StrJoin(problems.begin(), problems.begin() + named, "; ");
  if (problems.size() > named) {
    absl::StrAppend(&text, "; and ", problems.size() - named, " more tensors like these");
  }
  return absl::InvalidArgumentError(absl::StrCat(directory, ": ", text));
}

const StoredTensor* WeightFiles::Find(const std::string& name) const {
  const auto found = stored_.find(name);
  return found == stored_.end() ? nullptr : &found->second;
}

}  // namespace megatrain

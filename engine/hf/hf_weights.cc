#include "engine/hf/hf_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/master_convert.h"
#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr char kEmbeddingName[] = "model.embed_tokens.weight";
constexpr char kHeadName[] = "lm_head.weight";
// A message names this many tensors; of the rest it gives the number.
constexpr size_t kProblemsNamedMax = 5;

struct Source {
  const SafetensorsReader* reader = nullptr;
  const SafetensorsTensor* tensor = nullptr;
};

std::optional<FileDType> ParseFileDType(const std::string& name) {
  if (name == "F32") return FileDType::kF32;
  if (name == "F16") return FileDType::kF16;
  if (name == "BF16") return FileDType::kBF16;
  return std::nullopt;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Tensors that old files carry although they follow from the configuration.
bool IsKnownBuffer(const std::string& name) { return absl::EndsWith(name, "rotary_emb.inv_freq"); }

class Weights : public HfWeights {
 public:
  Weights(std::string directory, const ModelLayout& layout)
      : directory_(std::move(directory)), layout_(layout) {}

  absl::Status OpenFiles(FileSystem* files) {
    MT_ASSIGN_OR_RETURN(const HfWeightFiles found, FindHfWeightFiles(files, directory_));
    for (const std::string& path : found.paths) {
      MT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                          SafetensorsReader::Open(files, path));
      readers_.push_back(std::move(reader));
      for (const SafetensorsTensor& tensor : readers_.back()->header().tensors) {
        const auto [place, is_new] =
            sources_.insert({tensor.name, {readers_.back().get(), &tensor}});
        if (!is_new) {
          return absl::InvalidArgumentError(
              absl::StrCat("tensor \"", tensor.name,
                           "\" is in two files: ", place->second.reader->path(), " and ", path));
        }
      }
    }
    for (const auto& [name, file] : found.weight_map) {
      const auto source = sources_.find(name);
      const std::string path = JoinPath(directory_, file);
      if (source == sources_.end() || source->second.reader->path() != path) {
        return absl::InvalidArgumentError(absl::StrCat(JoinPath(directory_, kHfIndexFileName),
                                                       ": tensor \"", name, "\" is not in ", path));
      }
    }
    return CheckTensors();
  }

  absl::Status LoadTile(int index, const Tile& tile) const override {
    ZeroPaddingAndMoments(tile);
    std::vector<char> chunk(kChunkBytes);
    for (const TensorSpec& tensor : layout_.tiles[index].tensors) {
      MT_RETURN_IF_ERROR(LoadTensor(tensor, tile, chunk));
    }
    return absl::OkStatus();
  }

  DType ExactDType() const override {
    DType exact = DType::kBF16;
    ForEachTensor(layout_, [&](int, const TensorSpec& tensor) {
      if (sources_.at(tensor.name).tensor->dtype != "BF16") exact = DType::kF32;
    });
    return exact;
  }

 private:
  absl::Status CheckTensors() const {
    std::vector<std::string> problems;
    std::map<std::string, bool> known;
    ForEachTensor(layout_, [&](int, const TensorSpec& tensor) {
      known[tensor.name] = true;
      const auto source = sources_.find(tensor.name);
      if (source == sources_.end()) {
        problems.push_back(absl::StrCat("tensor \"", tensor.name, "\" is missing"));
        return;
      }
      const SafetensorsTensor& found = *source->second.tensor;
      if (found.shape != tensor.shape) {
        problems.push_back(absl::StrCat("tensor \"", tensor.name, "\" has shape ",
                                        ShapeText(found.shape), ", config.json says ",
                                        ShapeText(tensor.shape)));
      } else if (!ParseFileDType(found.dtype)) {
        problems.push_back(absl::StrCat("tensor \"", tensor.name, "\" has dtype ", found.dtype,
                                        "; F32, F16 and BF16 can be trained"));
      }
    });
    for (const auto& [name, source] : sources_) {
      // With tied embeddings the head is the embedding; LoadTensor compares its duplicate.
      const bool tied_head = layout_.model.tied_embeddings && name == kHeadName;
      if (!known.contains(name) && !tied_head && !IsKnownBuffer(name)) {
        problems.push_back(
            absl::StrCat("tensor \"", name, "\" does not belong to this model (config.json: ",
                         layout_.model.family, ", ", layout_.model.layer_count(), " layers",
                         layout_.model.tied_embeddings ? ", tied embeddings" : "", ")"));
      }
    }
    if (problems.empty()) return absl::OkStatus();
    const size_t named = std::min(problems.size(), kProblemsNamedMax);
    std::string text = absl::StrJoin(problems.begin(), problems.begin() + named, "; ");
    if (problems.size() > named) {
      absl::StrAppend(&text, "; and ", problems.size() - named, " more tensors like these");
    }
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": ", text));
  }

  // transformers does not tie a head that differs from the embedding, whatever config.json says.
  absl::Status CompareTiedHead(const Source& embedding) const {
    const auto found = sources_.find(kHeadName);
    if (found == sources_.end()) return absl::OkStatus();
    const Source& head = found->second;
    bool same = head.tensor->dtype == embedding.tensor->dtype &&
                head.tensor->shape == embedding.tensor->shape;
    std::vector<char> left(kChunkBytes), right(kChunkBytes);
    for (int64_t done = 0; same && done < embedding.tensor->bytes();) {
      const int64_t bytes = std::min(embedding.tensor->bytes() - done, kChunkBytes);
      MT_RETURN_IF_ERROR(embedding.reader->Read(*embedding.tensor, done, left.data(), bytes));
      MT_RETURN_IF_ERROR(head.reader->Read(*head.tensor, done, right.data(), bytes));
      same = std::equal(left.begin(), left.begin() + bytes, right.begin());
      done += bytes;
    }
    if (same) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        directory_, ": tensor \"", kHeadName, "\" differs from \"", kEmbeddingName,
        "\", but tie_word_embeddings is true in config.json (or by default); set it to false to "
        "train both, or remove the tensor to train the embedding as the head"));
  }

  absl::Status LoadTensor(const TensorSpec& tensor, const Tile& tile,
                          std::vector<char>& chunk) const {
    const Source& source = sources_.at(tensor.name);
    const FileDType dtype = *ParseFileDType(source.tensor->dtype);
    const int64_t size = FileDTypeBytes(dtype);
    if (layout_.model.tied_embeddings && tensor.name == kEmbeddingName) {
      MT_RETURN_IF_ERROR(CompareTiedHead(source));
    }
    for (int64_t done = 0; done < tensor.elements;) {
      const int64_t elements = std::min(tensor.elements - done, kChunkBytes / size);
      MT_RETURN_IF_ERROR(
          source.reader->Read(*source.tensor, done * size, chunk.data(), elements * size));
      const int64_t bad = StoreMaster(dtype, chunk.data(), elements, SectionsOf(tile, tensor),
                                      tensor.offset + done);
      if (bad >= 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            source.reader->path(), ": tensor \"", tensor.name, "\": element ", done + bad,
            tile.weight_dtype == DType::kBF16
                ? " is not finite, or too large for a BF16 weight (3.396e38)"
                : " is not finite"));
      }
      done += elements;
    }
    return absl::OkStatus();
  }

  const std::string directory_;
  const ModelLayout layout_;
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;
  std::map<std::string, Source> sources_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HfWeights>> HfWeights::Open(const std::string& directory,
                                                           const ModelLayout& layout,
                                                           FileSystem* files) {
  auto weights = std::make_unique<Weights>(directory, layout);
  MT_RETURN_IF_ERROR(weights->OpenFiles(files));
  return weights;
}

}  // namespace megatrain

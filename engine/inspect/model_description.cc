#include "engine/inspect/model_description.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/model/hf_directory.h"
#include "engine/model/hf_format.h"
#include "engine/model/model_layout.h"
#include "engine/model/safetensors.h"

namespace megatrain {
namespace {

absl::Status AddTensors(const std::string& path, ModelDescription* description) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                      SafetensorsReader::Open(PosixFileSystem(), path));
  description->files.push_back(path);
  for (const SafetensorsTensor& tensor : reader->header().tensors) {
    description->tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, tensor.elements, tensor.bytes()});
    description->tensor_bytes += tensor.bytes();
  }
  return absl::OkStatus();
}

// dtype -> tensors, elements.
std::map<std::string, std::pair<int64_t, int64_t>> CountByDtype(
    const std::vector<TensorDescription>& tensors) {
  std::map<std::string, std::pair<int64_t, int64_t>> counts;
  for (const TensorDescription& tensor : tensors) {
    ++counts[tensor.dtype].first;
    counts[tensor.dtype].second += tensor.elements;
  }
  return counts;
}

const char* RopeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
  }
  return "";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

void AddRow(std::string* text, const std::string& name, const std::string& value) {
  absl::StrAppendFormat(text, "%-16s %s\n", name, value);
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeModelDirectory(const std::string& directory) {
  ModelDescription description;
  description.kind = "model";
  description.path = directory;
  MT_ASSIGN_OR_RETURN(description.config, ReadModelConfig(directory));
  const ModelLayout layout = BuildModelLayout(*description.config);
  description.parameters = layout.parameters;
  const absl::StatusOr<HfWeightFiles> files = FindHfWeightFiles(PosixFileSystem(), directory);
  if (files.status().code() == absl::StatusCode::kNotFound) return description;
  if (!files.ok()) return files.status();
  MT_RETURN_IF_ERROR(HfWeights::Open(directory, layout).status());
  for (const std::string& path : files->paths) MT_RETURN_IF_ERROR(AddTensors(path, &description));
  return description;
}

absl::StatusOr<ModelDescription> DescribeCheckpoint(const std::string& checkpoint) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint));
  MT_ASSIGN_OR_RETURN(ModelDescription description, DescribeModelDirectory(checkpoint));
  description.kind = "checkpoint";
  description.state = manifest.state;
  description.checkpoint_bytes = manifest.total_bytes();
  return description;
}

absl::StatusOr<ModelDescription> DescribeSafetensors(const std::string& path) {
  ModelDescription description;
  description.kind = "safetensors";
  description.path = path;
  MT_RETURN_IF_ERROR(AddTensors(path, &description));
  for (const TensorDescription& tensor : description.tensors) {
    description.parameters += tensor.elements;
  }
  return description;
}

std::string ModelDescriptionJson(const ModelDescription& description) {
  nlohmann::ordered_json json;
  json["kind"] = description.kind;
  json["path"] = description.path;
  json["parameters"] = description.parameters;
  if (description.config.has_value()) {
    const ModelConfig& config = *description.config;
    json["family"] = ModelFamilyName(config.family);
    json["layers"] = config.layers;
    json["hidden"] = config.hidden;
    json["intermediate"] = config.intermediate;
    json["heads"] = config.heads;
    json["kv_heads"] = config.kv_heads;
    json["head_dim"] = config.head_dim;
    json["vocabulary"] = config.vocabulary;
    json["max_positions"] = config.max_positions;
    json["tied_embeddings"] = config.tied_embeddings;
    json["rope"] = RopeName(config.rope.type);
  }
  if (description.state.has_value()) {
    const CheckpointState& state = *description.state;
    json["step"] = state.step;
    json["steps_total"] = state.steps_total;
    json["data_position"] = state.data_position;
    json["seed"] = state.seed;
    json["weight_dtype"] = DTypeName(state.weight_dtype);
    json["threads"] = state.threads;
    json["checkpoint_bytes"] = description.checkpoint_bytes;
    json["spec"] = state.spec;
  }
  json["files"] = description.files;
  json["tensor_bytes"] = description.tensor_bytes;
  json["tensors"] = nlohmann::ordered_json::array();
  for (const TensorDescription& tensor : description.tensors) {
    nlohmann::ordered_json entry;
    entry["name"] = tensor.name;
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    json["tensors"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ModelDescriptionText(const ModelDescription& description) {
  std::string text = absl::StrCat(description.path, ": ", description.kind, "\n\n");
  if (description.config.has_value()) {
    const ModelConfig& config = *description.config;
    AddRow(&text, "family", ModelFamilyName(config.family));
    AddRow(&text, "parameters", FormatCount(description.parameters));
    AddRow(&text, "shape",
           absl::StrCat(config.layers, " layers, hidden ", config.hidden, ", intermediate ",
                        config.intermediate, ", ", config.heads, " heads of ", config.head_dim,
                        ", ", config.kv_heads, " for keys and values"));
    AddRow(&text, "vocabulary",
           absl::StrCat(FormatCount(config.vocabulary),
                        config.tied_embeddings ? ", head tied to the embedding" : ""));
    AddRow(&text, "positions",
           absl::StrCat(FormatCount(config.max_positions), ", rope ", RopeName(config.rope.type)));
  }
  if (description.state.has_value()) {
    const CheckpointState& state = *description.state;
    AddRow(&text, "step", absl::StrCat(state.step, " of ", state.steps_total));
    AddRow(&text, "sequences seen", FormatCount(state.data_position));
    AddRow(&text, "weights", DTypeName(state.weight_dtype));
    AddRow(&text, "threads", absl::StrCat(state.threads));
    AddRow(&text, "on disk", FormatBytes(description.checkpoint_bytes));
  }
  if (description.tensors.empty()) {
    AddRow(&text, "weights", "none");
    return text;
  }
  AddRow(
      &text, "tensors",
      absl::StrCat(FormatCount(static_cast<int64_t>(description.tensors.size())), " in ",
                   description.files.size(), description.files.size() == 1 ? " file, " : " files, ",
                   FormatBytes(description.tensor_bytes)));
  for (const auto& [dtype, count] : CountByDtype(description.tensors)) {
    AddRow(&text, "",
           absl::StrCat(dtype, ": ", FormatCount(count.first), " tensors, ",
                        FormatCount(count.second), " elements"));
  }
  text += "\n";
  // Layers are alike: the first one stands for all.
  for (const TensorDescription& tensor : description.tensors) {
    if (absl::StartsWith(tensor.name, "model.layers.") &&
        !absl::StartsWith(tensor.name, "model.layers.0.")) {
      continue;
    }
    absl::StrAppendFormat(&text, "  %-48s %-5s %s\n", tensor.name, tensor.dtype,
                          ShapeText(tensor.shape));
  }
  if (description.config.has_value() && description.config->layers > 1) {
    absl::StrAppend(&text, "  and layers 1 to ", description.config->layers - 1,
                    " with the shapes of layer 0\n");
  }
  return text;
}

}  // namespace megatrain

#include "engine/inspect/inspect_model.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/hf/config/ignored_tensors.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/safetensors.h"
#include "engine/model/parameter_count.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

struct Totals {
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;

  void Add(const SafetensorsTensor& tensor) {
    ++tensors;
    parameters += tensor.elements;
    bytes += tensor.bytes();
  }
};

std::string FileName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string TensorLine(const SafetensorsTensor& tensor) {
  return absl::StrFormat("  %-52s %-6s %s\n", tensor.name, tensor.dtype, ShapeText(tensor.shape));
}

// A tensor of a layer: the layer's number, and what it is called within the layer.
struct LayerTensor {
  std::string layer, name;
};

// Returns nullopt for tensors that are no layer's. `layers` begins the names of those that are.
std::optional<LayerTensor> InLayer(const std::string& layers, const std::string& name) {
  if (!absl::StartsWith(name, layers)) return std::nullopt;
  const size_t end = name.find('.', layers.size());
  if (end == std::string::npos) return std::nullopt;
  return LayerTensor{name.substr(layers.size(), end - layers.size()), name.substr(end + 1)};
}

// Returns the first layer of each kind. Layers are of one kind if their tensors have the same
// names, types and shapes.
std::set<std::string> LayersOfDifferentTensors(const std::string& layers,
                                               const std::vector<SafetensorsTensor>& tensors) {
  std::map<std::string, std::set<std::string>> kinds;  // by the layer's number
  std::vector<std::string> order;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::optional<LayerTensor> place = InLayer(layers, tensor.name);
    if (!place.has_value()) continue;
    if (!kinds.contains(place->layer)) order.push_back(place->layer);
    kinds[place->layer].insert(
        absl::StrCat(place->name, " ", tensor.dtype, " ", ShapeText(tensor.shape)));
  }
  // Files have layers in any order.
  std::sort(order.begin(), order.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  std::set<std::string> first;
  std::set<std::set<std::string>> seen;
  for (const std::string& layer : order) {
    if (seen.insert(kinds[layer]).second) first.insert(layer);
  }
  return first;
}

// Returns a line for each tensor of the text model, but for layers and experts that are like one
// before them, and for those in `ignored`.
std::string TensorLines(const WrapperDescription& wrapper,
                        const std::map<std::string, std::string>& ignored,
                        std::vector<SafetensorsTensor> tensors) {
  std::erase_if(tensors, [&](const SafetensorsTensor& tensor) {
    return wrapper.Carries(tensor.name) || ignored.contains(tensor.name);
  });
  const std::string layers = wrapper.OnDisk("model.layers.");
  const std::set<std::string> listed = LayersOfDifferentTensors(layers, tensors);
  std::string lines;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::optional<LayerTensor> place = InLayer(layers, tensor.name);
    const bool later_expert = absl::StrContains(tensor.name, ".experts.") &&
                              absl::EndsWith(tensor.name, ".weight") &&
                              !absl::StrContains(tensor.name, ".experts.0.");
    if (later_expert || (place.has_value() && !listed.contains(place->layer))) continue;
    absl::StrAppend(&lines, TensorLine(tensor));
  }
  return lines;
}

// Writes the content of the headers of `paths` into both forms of the report.
absl::Status DescribeFiles(const std::vector<std::string>& paths, const ModelDescription& model,
                           std::string* text, Json* json) {
  Totals all;
  std::map<std::string, Totals> by_dtype;
  Json tensors = Json::array(), files = Json::array();
  std::vector<SafetensorsTensor> headers;
  std::set<std::string> names;
  for (const std::string& path : paths) {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(PosixFileSystem(), path));
    files.push_back(FileName(path));
    for (const SafetensorsTensor& tensor : reader->header().tensors) {
      all.Add(tensor);
      by_dtype[tensor.dtype].Add(tensor);
      tensors.push_back({{"name", tensor.name},
                         {"dtype", tensor.dtype},
                         {"shape", tensor.shape},
                         {"bytes", tensor.bytes()},
                         {"file", FileName(path)}});
      headers.push_back(tensor);
      names.insert(tensor.name);
    }
  }
  const std::map<std::string, std::string> ignored = FindIgnoredTensors(model, names);
  if (!ignored.empty()) {
    const std::string line = DescribeIgnoredTensors(model, names);
    absl::StrAppend(text, "ignored     ", line, "\n");
    (*json)["model"]["ignored"] = line;
  }
  const std::string lines = TensorLines(model.wrapper, ignored, std::move(headers));
  Json dtypes = Json::object();
  for (const auto& [dtype, totals] : by_dtype) {
    dtypes[dtype] = {
        {"tensors", totals.tensors}, {"parameters", totals.parameters}, {"bytes", totals.bytes}};
    absl::StrAppend(text, "weights     ", FormatCount(totals.tensors), " tensors of ", dtype, ", ",
                    FormatCount(totals.parameters), " elements, ", FormatBytes(totals.bytes), "\n");
  }
  absl::StrAppend(text, "files       ", paths.size(), "\n", lines);
  (*json)["files"] = std::move(files);
  (*json)["bytes"] = all.bytes;
  if (!json->contains("parameters")) (*json)["parameters"] = all.parameters;
  (*json)["dtypes"] = std::move(dtypes);
  (*json)["tensors"] = std::move(tensors);
  return absl::OkStatus();
}

void DescribeConfig(const ModelDescription& model, std::string* text, Json* json) {
  const int64_t parameters = ParameterCount(model);
  const AttentionDescription& attention = FirstAttention(model);
  const WrapperDescription& wrapper = model.wrapper;
  absl::StrAppend(text, "family      ", model.family,
                  wrapper.is_there() ? absl::StrCat(", the text model of ", wrapper.family) : "",
                  "\n");
  if (wrapper.is_there()) {
    absl::StrAppend(text, "carried     ", FormatCount(wrapper.carried_tensors), " other tensors, ",
                    FormatBytes(wrapper.carried_bytes),
                    ": not trained, and unchanged in checkpoints and exports\n");
  }
  absl::StrAppend(text, "parameters  ", FormatCount(parameters), "\n");
  absl::StrAppend(text, "positions   ", FormatCount(model.max_positions), "\n");
  absl::StrAppend(text, DescribeModel(model));
  (*json)["parameters"] = parameters;
  (*json)["model"] = {{"family", model.family},
                      {"vocabulary", model.vocabulary},
                      {"hidden", model.hidden},
                      {"layers", model.layer_count()},
                      {"heads", attention.heads},
                      {"kv_heads", attention.kv_heads},
                      {"head_dim", attention.head_dim},
                      {"max_positions", model.max_positions},
                      {"tied_embeddings", model.tied_embeddings},
                      {"rope", RopeTypeName(model.ropes.front().type)}};
  const auto dense =
      std::find_if(model.layers.begin(), model.layers.end(),
                   [](const LayerDescription& layer) { return layer.experts.count == 0; });
  if (dense != model.layers.end()) {
    (*json)["model"]["intermediate"] = dense->feed_forward.intermediate;
  }
  const auto sparse =
      std::find_if(model.layers.begin(), model.layers.end(),
                   [](const LayerDescription& layer) { return layer.experts.count > 0; });
  if (sparse != model.layers.end()) {
    (*json)["model"]["experts"] = {{"count", sparse->experts.count},
                                   {"chosen", sparse->experts.chosen},
                                   {"intermediate", sparse->experts.intermediate},
                                   {"shared_intermediate", sparse->experts.shared_intermediate}};
  }
  Json lines = Json::array();
  for (const auto line : absl::StrSplit(DescribeModel(model), '\n')) {
    if (!line.empty()) lines.push_back(std::string(line.data(), line.size()));
  }
  (*json)["model"]["description"] = std::move(lines);
  if (wrapper.is_there()) {
    (*json)["model"]["wrapper"] = {{"family", wrapper.family},
                                   {"carried_tensors", wrapper.carried_tensors},
                                   {"carried_bytes", wrapper.carried_bytes}};
  }
}

}  // namespace

absl::StatusOr<ModelReport> InspectModel(const std::string& path) {
  FileSystem* const files = PosixFileSystem();
  Json json;
  json["path"] = path;
  std::string text = absl::StrCat("path        ", path, "\n");
  std::vector<std::string> paths;
  ModelDescription config;
  if (files->IsDirectory(path)) {
    json["kind"] = "hf_directory";
    MT_ASSIGN_OR_RETURN(config, ReadModelDescription(path));
    DescribeConfig(config, &text, &json);
    const absl::StatusOr<HfWeightFiles> found = FindHfWeightFiles(files, path);
    if (found.ok()) {
      MT_RETURN_IF_ERROR(HfWeights::Open(path, BuildModelLayout(config)).status());
      paths = found->paths;
    } else if (!absl::IsNotFound(found.status())) {
      return found.status();
    }
  } else {
    json["kind"] = "safetensors";
    paths.push_back(path);
  }
  MT_RETURN_IF_ERROR(DescribeFiles(paths, config, &text, &json));
  ModelReport report;
  report.text = std::move(text);
  report.json = std::move(json);
  return report;
}

}  // namespace megatrain

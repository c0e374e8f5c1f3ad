#include "engine/hf/hf_format.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/hf/config/model_family.h"
#include "engine/hf/safetensors.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr char kTemplateFileName[] = "chat_template.jinja";
constexpr char kTemplateSuffix[] = ".jinja";

// Changes the configuration to that of files without the tensors that the family ignores.
void WithoutIgnoredTensors(nlohmann::ordered_json& config) {
  if (!config.contains("model_type") || !config["model_type"].is_string()) return;
  const ModelFamily* const family = FindModelFamily(config["model_type"].get<std::string>());
  if (family == nullptr || family->ignored.count_key.empty()) return;
  const auto count = config.find(family->ignored.count_key);
  if (count != config.end()) *count = 0;
}

// model-00001-of-00003.safetensors
bool IsShardName(absl::string_view name) {
  const absl::string_view whole = name;
  int64_t shard = 0, shards = 0;
  if (!absl::ConsumePrefix(&name, "model-") || !absl::ConsumeSuffix(&name, ".safetensors")) {
    return false;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(name, "-of-");
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &shard) &&
         absl::SimpleAtoi(parts[1], &shards) && whole == HfShardName(shard, shards);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListHfSideFiles(FileSystem* files,
                                                         const std::string& directory) {
  std::vector<std::string> names(std::begin(kHfSideFileNames), std::end(kHfSideFileNames));
  const std::string templates = JoinPath(directory, kHfTemplatesDirectory);
  if (!files->IsDirectory(templates)) return names;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> inner, files->ListDirectory(templates));
  for (const std::string& name : inner) {
    if (!absl::EndsWith(name, kTemplateSuffix) || !CheckUtf8(name).ok() ||
        files->IsDirectory(JoinPath(templates, name))) {
      continue;
    }
    names.push_back(JoinPath(kHfTemplatesDirectory, name));
  }
  return names;
}

std::string HfShardName(int64_t shard, int64_t shards) {
  return absl::StrFormat("model-%05d-of-%05d.safetensors", shard, shards);
}

bool IsHfFileName(const std::string& name) {
  if (name == kConfigFileName || name == kHfIndexFileName || name == kHfPartsIndexFileName) {
    return true;
  }
  if (name == kHfWeightsFileName || name == kCarriedFileName || IsShardName(name)) return true;
  const std::string templates = absl::StrCat(kHfTemplatesDirectory, "/");
  if (absl::StartsWith(name, templates)) return absl::EndsWith(name, kTemplateSuffix);
  return std::find(std::begin(kHfSideFileNames), std::end(kHfSideFileNames), name) !=
         std::end(kHfSideFileNames);
}

absl::StatusOr<std::vector<std::string>> ListHfDirectory(FileSystem* files,
                                                         const std::string& directory) {
  MT_ASSIGN_OR_RETURN(std::vector<std::string> names, files->ListDirectory(directory));
  const std::string templates = JoinPath(directory, kHfTemplatesDirectory);
  const auto found = std::find(names.begin(), names.end(), kHfTemplatesDirectory);
  if (found == names.end() || !files->IsDirectory(templates)) return names;
  names.erase(found);
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> inner, files->ListDirectory(templates));
  for (const std::string& name : inner) names.push_back(JoinPath(kHfTemplatesDirectory, name));
  return names;
}

std::string HfPartName(const std::string& name, int64_t begin, int64_t end) {
  return absl::StrCat(name, "[", begin, ":", end, "]");
}

std::string HfColumnsName(const std::string& name, int64_t begin, int64_t end) {
  return absl::StrCat(name, "[:,", begin, ":", end, "]");
}

std::string HfWholeName(const std::string& name) {
  if (!absl::EndsWith(name, "]")) return name;
  return name.substr(0, name.rfind('['));  // all of it if there is none
}

std::string MakeHfIndex(const HfWeightMap& weight_map, int64_t total_bytes) {
  nlohmann::ordered_json index;
  index["metadata"] = {{"total_size", total_bytes}};
  index["weight_map"] = nlohmann::ordered_json(weight_map);
  return index.dump(2) + "\n";
}

absl::StatusOr<HfWeightMap> ParseHfIndex(std::string_view text, const std::string& path) {
  MT_ASSIGN_OR_RETURN(const nlohmann::json root, ParseJson(text, path));
  const auto malformed = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    return malformed("weight_map: must be an object of tensor names and file names");
  }
  HfWeightMap map;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    if (!file.is_string()) {
      return malformed(absl::StrCat("weight_map: \"", tensor, "\" names no file"));
    }
    const std::string name = file.get<std::string>();
    if (name.empty() || name == "." || name == ".." || absl::StrContains(name, "/") ||
        absl::StrContains(name, std::string(1, '\0'))) {
      return malformed(absl::StrCat("weight_map: \"", tensor, "\": \"", name,
                                    "\" is not a file beside the index"));
    }
    map[tensor] = name;
  }
  if (map.empty()) return malformed("weight_map: is empty");
  return map;
}

absl::StatusOr<HfWeightFiles> FindHfWeightFiles(FileSystem* files, const std::string& directory) {
  HfWeightFiles found;
  const std::string single = JoinPath(directory, kHfWeightsFileName);
  std::string index = JoinPath(directory, kHfIndexFileName);
  if (files->FileExists(single)) {
    found.paths.push_back(single);
    return found;
  }
  if (!files->FileExists(index)) index = JoinPath(directory, kHfPartsIndexFileName);
  if (!files->FileExists(index)) {
    if (!files->IsDirectory(directory)) {
      return absl::NotFoundError(absl::StrCat(directory, ": there is no such directory"));
    }
    return absl::NotFoundError(absl::StrCat(
        directory, ": holds neither ", kHfWeightsFileName, " nor ", kHfIndexFileName,
        "; weights in other formats (pytorch_model.bin) must be converted to safetensors first"));
  }
  MT_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, index, kHfIndexBytesMax));
  MT_ASSIGN_OR_RETURN(found.weight_map, ParseHfIndex(text, index));
  found.index = index;
  std::set<std::string> names;
  for (const auto& [tensor, file] : found.weight_map) names.insert(file);
  for (const std::string& name : names) found.paths.push_back(JoinPath(directory, name));
  return found;
}

absl::Status CheckHfWeightFilesExist(FileSystem* files, const std::string& directory) {
  MT_ASSIGN_OR_RETURN(const HfWeightFiles found, FindHfWeightFiles(files, directory));
  for (const std::string& path : found.paths) {
    if (!files->FileExists(path)) {
      return absl::NotFoundError(absl::StrCat(path, " is missing, and ", found.index, " names it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::set<std::string>> ReadHfTensorNames(FileSystem* files,
                                                        const std::string& directory) {
  MT_ASSIGN_OR_RETURN(const HfWeightFiles found, FindHfWeightFiles(files, directory));
  std::set<std::string> names;
  for (const auto& [name, file] : found.weight_map) names.insert(HfWholeName(name));
  if (!names.empty()) return names;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                      SafetensorsReader::Open(files, found.paths.front()));
  for (const SafetensorsTensor& tensor : reader->header().tensors) names.insert(tensor.name);
  return names;
}

absl::StatusOr<std::string> RewriteConfigDType(std::string_view text, DType weight_dtype,
                                               const std::string& path) {
  MT_ASSIGN_OR_RETURN(nlohmann::ordered_json root, ParseOrderedJson(text, path));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not an object"));
  }
  const char* const name = weight_dtype == DType::kBF16 ? "bfloat16" : "float32";
  WithoutIgnoredTensors(root);
  const bool has_dtype = root.contains("dtype");
  if (has_dtype) root["dtype"] = name;
  if (!has_dtype || root.contains("torch_dtype")) root["torch_dtype"] = name;
  root.erase("quantization_config");
  if (root.contains("text_config") && root["text_config"].is_object()) {
    // What a text model ignores is carried by its wrapper.
    for (const char* const key : {"dtype", "torch_dtype"}) {
      if (root["text_config"].contains(key)) root["text_config"][key] = name;
    }
  }
  return root.dump(2) + "\n";
}

absl::StatusOr<std::vector<std::string>> CopyHfSideFiles(FileSystem* files,
                                                         const HfSideFiles& source,
                                                         DType weight_dtype,
                                                         const std::string& to) {
  const std::string config_path = JoinPath(source.directory, kConfigFileName);
  MT_ASSIGN_OR_RETURN(const std::string config, ReadWholeFile(files, config_path, kConfigBytesMax));
  MT_ASSIGN_OR_RETURN(const std::string rewritten,
                      RewriteConfigDType(config, weight_dtype, config_path));
  MT_RETURN_IF_ERROR(WriteFileSynced(files, JoinPath(to, kConfigFileName), rewritten));
  std::vector<std::string> names = {kConfigFileName};
  MT_ASSIGN_OR_RETURN(std::vector<std::string> wanted, ListHfSideFiles(files, source.directory));
  const auto is_further_template = [](const std::string& name) {
    return absl::StartsWith(name, absl::StrCat(kHfTemplatesDirectory, "/"));
  };
  if (!source.chat_template.empty()) {
    std::erase_if(wanted, [&](const std::string& name) {
      return absl::StartsWith(name, "chat_template.") || is_further_template(name);
    });
    MT_RETURN_IF_ERROR(
        WriteFileSynced(files, JoinPath(to, kTemplateFileName), source.chat_template));
    names.push_back(kTemplateFileName);
  }
  const std::string templates = JoinPath(to, kHfTemplatesDirectory);
  const bool has_templates = absl::c_any_of(wanted, is_further_template);
  if (has_templates) MT_RETURN_IF_ERROR(files->CreateDirectories(templates));
  for (const std::string& name : wanted) {
    const std::string from = JoinPath(source.directory, name);
    if (!files->FileExists(from)) continue;
    MT_RETURN_IF_ERROR(CopyFileSynced(files, from, JoinPath(to, name)).status());
    names.push_back(name);
  }
  if (has_templates) MT_RETURN_IF_ERROR(files->SyncDirectory(templates));
  return names;
}

}  // namespace megatrain

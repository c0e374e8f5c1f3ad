#include "engine/chat/template_files.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/directories/model_directory_file.h"
#include "engine/base/json.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

constexpr char kConfig[] = "tokenizer_config.json";
constexpr char kFolder[] = "additional_chat_templates";
constexpr size_t kProgramsMax = 100;

// Returns the JSON object in a file, or null if there is no such file.
absl::StatusOr<Json> ReadObject(const std::string& directory, const std::string& name,
                                FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      ReadModelDirectoryFile(directory, name, files));
  if (!text.has_value()) return Json();
  const std::string path = JoinPath(directory, name);
  MT_ASSIGN_OR_RETURN(Json json, ParseJson(*text, path));
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  }
  return json;
}

// Reads `chat_template` of a JSON file; adds nothing if it has none.
absl::Status AddFromJson(const std::string& directory, const std::string& name, FileSystem* files,
                         std::map<std::string, ChatProgramText>* programs) {
  MT_ASSIGN_OR_RETURN(const Json json, ReadObject(directory, name, files));
  if (!json.is_object()) return absl::OkStatus();
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  const std::string path = JoinPath(directory, name);
  if (found->is_string()) {
    (*programs)["default"] = {found->get<std::string>(), path};
    return absl::OkStatus();
  }
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
      path, ": chat_template is neither a string nor a list of {\"name\": .., \"template\": ..}"));
  if (!found->is_array() || found->size() > kProgramsMax) return bad;
  for (const Json& item : *found) {
    if (!item.is_object()) return bad;
    const auto program_name = item.find("name");
    const auto text = item.find("template");
    if (program_name == item.end() || !program_name->is_string() || text == item.end() ||
        !text->is_string()) {
      return bad;
    }
    const std::string key = program_name->get<std::string>();
    (*programs)[key] = {text->get<std::string>(),
                        absl::StrCat(path, ": chat_template \"", key.substr(0, 80), "\"")};
  }
  return absl::OkStatus();
}

absl::Status AddFromFiles(const std::string& directory, FileSystem* files,
                          std::map<std::string, ChatProgramText>* programs) {
  MT_ASSIGN_OR_RETURN(std::optional<std::string> text,
                      ReadModelDirectoryFile(directory, "chat_template.jinja", files));
  if (text.has_value()) {
    (*programs)["default"] = {*std::move(text), JoinPath(directory, "chat_template.jinja")};
  }
  const std::string folder = JoinPath(directory, kFolder);
  if (!files->IsDirectory(folder)) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(folder));
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".jinja")) continue;
    if (programs->size() == kProgramsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": holds more than ", kProgramsMax, " templates"));
    }
    MT_ASSIGN_OR_RETURN(text, ReadModelDirectoryFile(folder, name, files));
    if (!text.has_value()) continue;
    (*programs)[std::string(absl::StripSuffix(name, ".jinja"))] = {*std::move(text),
                                                                   JoinPath(folder, name)};
  }
  return absl::OkStatus();
}

// A special token is written "text" or {"content": "text", ...}.
std::optional<std::string> TokenText(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return std::nullopt;
  const auto content = value.find("content");
  if (content == value.end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

}  // namespace

absl::StatusOr<std::map<std::string, ChatProgramText>> ReadChatPrograms(
    const std::string& directory, FileSystem* files) {
  std::map<std::string, ChatProgramText> programs;
  MT_RETURN_IF_ERROR(AddFromFiles(directory, files, &programs));
  for (const char* name : {kConfig, "chat_template.json"}) {
    if (programs.empty()) MT_RETURN_IF_ERROR(AddFromJson(directory, name, files, &programs));
  }
  return programs;
}

absl::StatusOr<std::map<std::string, std::string>> ReadSpecialTokens(const std::string& directory,
                                                                     FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Json config, ReadObject(directory, kConfig, files));
  Json map;
  // A configuration that says this is complete. Otherwise the map goes before.
  if (!config.is_object() || !config.contains("added_tokens_decoder")) {
    MT_ASSIGN_OR_RETURN(map, ReadObject(directory, "special_tokens_map.json", files));
  }
  std::map<std::string, std::string> tokens;
  for (const Json* const json : {&std::as_const(map), &config}) {
    if (!json->is_object()) continue;
    const auto add = [&tokens](const std::string& key, const Json& value) {
      std::optional<std::string> text = TokenText(value);
      if (text.has_value()) tokens.try_emplace(key, *std::move(text));
    };
    for (const auto& [key, value] : json->items()) {
      if (absl::EndsWith(key, "_token")) add(key, value);
    }
    const auto extra = json->find("extra_special_tokens");
    if (extra != json->end() && extra->is_object()) {
      for (const auto& [key, value] : extra->items()) add(key, value);
    }
  }
  return tokens;
}

}  // namespace megatrain

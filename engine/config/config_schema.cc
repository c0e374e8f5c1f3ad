#include "engine/config/config_schema.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHelpColumn = 34;

// Section, which may be "", and name.
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// The default, or the example.
Json ShownValue(const ConfigKey& key) {
  const std::string text =
      key.default_or_example.empty() ? key.value.text() : key.default_or_example;
  const bool is_text = key.default_or_example.empty() && key.value.schema["type"] == "string";
  return is_text ? Json(text) : Json::parse(text);
}

std::string HelpText(const ConfigKey& key, const std::string& change_mark) {
  const std::string note = key.value.note.empty() ? "" : absl::StrCat("; ", key.value.note);
  return absl::StrCat(
      key.help, note,
      key.may_change && !change_mark.empty() ? absl::StrCat(" [", change_mark, "]") : "");
}

// Text that YAML could take for something else is written in quotes.
std::string YamlText(const Json& value) {
  std::vector<std::string> parts;
  if (value.is_array()) {
    for (const Json& item : value) parts.push_back(YamlText(item));
    return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
  }
  if (value.is_object()) {
    for (const auto& [word, item] : value.items()) {
      parts.push_back(absl::StrCat(word, ": ", YamlText(item)));
    }
    return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
  }
  if (!value.is_string()) return value.dump();
  const std::string text = value.get<std::string>();
  const auto plain = [](char c) {
    return absl::ascii_isalnum(c) || std::strchr("_./-", c) != nullptr;
  };
  const bool is_word = !text.empty() && (absl::ascii_isalpha(text[0]) || text[0] == '/') &&
                       std::all_of(text.begin(), text.end(), plain);
  return is_word ? text : value.dump();
}

}  // namespace

Json MapSchema(const std::vector<ConfigKey>& keys, const std::string& change_mark) {
  Json schema = {{"type", "object"},
                 {"properties", Json::object()},
                 {"required", Json::array()},
                 {"additionalProperties", false}};
  Json empty_section = schema;
  empty_section["type"] = {"object", "null"};
  const auto require = [](const std::string& name, Json* map) {
    Json& names = (*map)["required"];
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const ConfigKey& key : keys) {
    const auto [section, name] = SplitPath(key.path);
    Json* map = &schema;
    if (!section.empty()) {
      if (key.required_hint.has_value()) require(section, map);
      Json& properties = schema["properties"];
      if (!properties.contains(section)) properties[section] = empty_section;
      map = &properties[section];
    }
    if (key.required_hint.has_value()) require(name, map);
    Json entry = key.value.schema;
    if (key.required_hint.has_value() && entry.contains("items")) entry["minItems"] = 1;
    entry["description"] = HelpText(key, change_mark);
    if (key.has_default) {
      entry["default"] = ShownValue(key);
    } else {
      entry["examples"] = Json::array({ShownValue(key)});
    }
    (*map)["properties"][name] = std::move(entry);
  }
  return schema;
}

Json JsonSchema(const ConfigTable& table) {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", absl::StrCat("Megatrain ", table.file)},
                 {"description",
                  absl::StrCat("Keys marked [", table.change_mark, "] ", table.change_help, ".")}};
  schema.update(MapSchema(table.keys, table.change_mark));
  return schema;
}

std::string ConfigListing(const ConfigTable& table) {
  std::string listing, section_before;
  for (const ConfigKey& key : table.keys) {
    const auto [section, name] = SplitPath(key.path);
    if (section != section_before && !section.empty()) absl::StrAppend(&listing, section, ":\n");
    section_before = section;
    const bool commented = !key.has_default && !key.required_hint.has_value();
    std::string line = absl::StrCat(section.empty() ? "" : "  ", commented ? "# " : "", name, ": ",
                                    YamlText(ShownValue(key)));
    line.resize(std::max(line.size() + 1, kHelpColumn), ' ');
    std::vector<std::string> words;
    for (const Json& word : key.value.schema.value("enum", Json::array())) {
      words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    }
    absl::StrAppend(&line, "# ", words.size() > 1 ? absl::StrJoin(words, " | ") + "; " : "");
    absl::StrAppend(&listing, line, HelpText(key, table.change_mark), "\n");
  }
  return listing;
}

}  // namespace megatrain

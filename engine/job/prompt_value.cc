#include "engine/job/prompt_value.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

// A sample is answered greedily, so that it has no seed.
constexpr const char* kKeys[] = {"messages", "system", "tools", "documents",
                                 "chat_template_kwargs"};

Json ToJson(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar: {
      if (node.quoted) return node.scalar;
      // YAML's own words, of which JSON has the first alone.
      if (node.scalar == "True" || node.scalar == "TRUE") return true;
      if (node.scalar == "False" || node.scalar == "FALSE") return false;
      const Json value = Json::parse(node.scalar, nullptr, /*allow_exceptions=*/false);
      return value.is_primitive() && !value.is_discarded() ? value : Json(node.scalar);
    }
    case YamlNode::Kind::kSequence: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(ToJson(item));
      return list;
    }
    case YamlNode::Kind::kMap: {
      Json map = Json::object();
      for (const YamlEntry& entry : node.entries) map[entry.key] = ToJson(entry.value);
      return map;
    }
  }
  return nullptr;
}

}  // namespace

ConfigValue Prompts(std::vector<Prompt>* prompts) {
  ConfigValue value;
  value.expects = "a list of texts, or of maps with messages";
  value.schema["type"] = "array";
  value.schema["items"] = {{"oneOf",
                            {{{"type", "string"}, {"minLength", 1}},
                             {{"type", "object"},
                              {"properties", {{"messages", {{"type", "array"}}}}},
                              {"required", {"messages"}}}}}};
  value.read = [prompts](const YamlNode& node) -> std::optional<ValueError> {
    if (node.kind != YamlNode::Kind::kSequence) return ValueError{};
    prompts->clear();
    for (const YamlNode& item : node.items) {
      Prompt& prompt = prompts->emplace_back();
      if (item.kind == YamlNode::Kind::kScalar && !item.scalar.empty()) {
        prompt.text = item.scalar;
      } else if (item.kind == YamlNode::Kind::kMap && item.Find("messages") != nullptr) {
        for (const YamlEntry& entry : item.entries) {
          if (std::find(std::begin(kKeys), std::end(kKeys), entry.key) != std::end(kKeys)) continue;
          return ValueError{absl::StrCat("does not know the key ", entry.key, "; it may have ",
                                         absl::StrJoin(kKeys, ", ")),
                            absl::StrCat("[", prompts->size() - 1, "].", entry.key),
                            entry.value.where};
        }
        prompt.record = ToJson(item).dump();
      } else {
        return ValueError{
            absl::StrCat("expects a text, or a map with messages, got ", item.Describe()),
            absl::StrCat("[", prompts->size() - 1, "]"), item.where};
      }
    }
    return std::nullopt;
  };
  value.text = [prompts] {
    Json list = Json::array();
    for (const Prompt& prompt : *prompts) {
      list.push_back(prompt.record.empty() ? Json(prompt.text) : Json::parse(prompt.record));
    }
    return list.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  return value;
}

}  // namespace megatrain

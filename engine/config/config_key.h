// A key of a configuration file, declared once: name, type, bounds, default, help and whether it
// may change later. Reading YAML and overrides (config_reader.h), the JSON Schema and the listing
// for people (config_schema.h) all come from a ConfigTable; config_values.h has the types.
#ifndef MEGATRAIN_ENGINE_CONFIG_CONFIG_KEY_H_
#define MEGATRAIN_ENGINE_CONFIG_CONFIG_KEY_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/yaml_tree.h"

namespace megatrain {

// An error in the value of a key.
struct ValueError {
  std::string message;  // empty: it is not what the key expects
  std::string path;     // where beneath the key: "[2].path"
  std::string where;    // file and line, if they are not the value's own
};

// The type of a value, bound to the field that holds it.
struct ConfigValue {
  std::string expects;            // "a whole number of 1 or more": completes "expects ..."
  std::string note;               // what a special value means: "0 = no limit"; may be empty
  nlohmann::ordered_json schema;  // type and bounds in the terms of JSON Schema
  // Reads the node into the field. Returns what is wrong with it, or nothing.
  std::function<std::optional<ValueError>(const YamlNode& node)> read;
  // The field as canonical text: equal texts mean equal values.
  std::function<std::string()> text;
};

struct ConfigKey {
  std::string path;  // "training.steps": at most one section deep
  ConfigValue value;
  std::string help;  // plain English, with units; one line
  // Whether the value may change without beginning anew; ConfigTable::change_help says when.
  bool may_change = false;
  // The default as JSON, where it is not what the field of a fresh struct holds; without a default,
  // an example.
  std::string shown = "";
  bool has_default = true;
  // The key must be given. How the message goes on if it is not: "; list the training files".
  std::optional<std::string> missing = std::nullopt;
};

// Keys point into the struct that they were made for and must not outlive it.
struct ConfigTable {
  std::string file;         // "job file"
  std::string example;      // an override: "training.steps=50"
  std::string change_mark;  // marks keys that may change in listings: "resume"
  std::string change_help;  // "may be changed by a resumed run"
  std::vector<ConfigKey> keys;

  // Null if there is no such key.
  const ConfigKey* Find(const std::string& path) const;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_KEY_H_

// Declares the keys of a configuration file. Each key is described once, with name, type, bounds,
// default, help and whether it may change later. The reader of YAML and overrides
// (config_reader.h), the JSON Schema and the listing for people (config_schema.h) are driven by
// these tables. config_values.h has the value types.
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
  std::string message;  // empty if the value is of the wrong type or out of bounds
  std::string path;     // the place within the value: "[2].path"
  std::string where;    // file and line, if not those of the value
};

// The type of a value, bound to the field that it is read into. The field must outlive it.
struct ConfigValue {
  std::string expects;            // "a whole number of 1 or more": completes "expects ..."
  std::string note;               // the meaning of a special value: "0 = no limit"; may be empty
  nlohmann::ordered_json schema;  // type and bounds in the terms of JSON Schema
  // Reads the node into the field. Returns the error, after which the field may have changed, or
  // nullopt.
  std::function<std::optional<ValueError>(const YamlNode& node)> read;
  // Returns the field's present value as canonical text: equal texts mean equal values. The text of
  // a default must be JSON, unless schema["type"] is "string" or ConfigKey::default_or_example
  // is set.
  std::function<std::string()> text;
};

// For example {"training.steps", Whole(&training.steps, 1), "number of optimizer steps"}.
struct ConfigKey {
  std::string path;  // "training.steps": at most one section deep
  ConfigValue value;
  std::string help;  // plain English, with units; one line
  // The value may be different when the file is read again; ConfigTable::change_help says when.
  bool may_change = false;
  // The default as JSON text, if it is not what the field of a fresh struct holds. For a key
  // without a default, an example.
  std::string default_or_example = "";
  bool has_default = true;  // false: default_or_example is an example
  // If set, the key must be given, and a list must not be empty. The text ends the error message
  // for a missing key: "; list the training files".
  std::optional<std::string> required_hint = std::nullopt;
};

// The keys of one kind of file. They are bound to the fields of one struct, which must outlive
// them.
struct ConfigTable {
  std::string file;         // the kind of file: "job file"
  std::string example;      // an example of an override: "training.steps=50"
  std::string change_mark;  // the mark of keys with may_change in listings: "resume"
  std::string change_help;  // its meaning: "may be changed by a resumed run"
  std::vector<ConfigKey> keys;

  // Returns the key with this path, or null if there is none. Valid until `keys` changes.
  const ConfigKey* Find(const std::string& path) const;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_KEY_H_

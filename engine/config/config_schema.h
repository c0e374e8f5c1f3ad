// Writes a table of keys as a JSON Schema, with which editors check and complete files, and as a
// listing for people.
#ifndef MEGATRAIN_ENGINE_CONFIG_CONFIG_SCHEMA_H_
#define MEGATRAIN_ENGINE_CONFIG_CONFIG_SCHEMA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/config/config_key.h"

namespace megatrain {

// Returns the JSON Schema (draft 2020-12) of the whole file. Rules that span several keys are not
// in it. REQUIRES: the keys are bound to a fresh struct, because its fields are shown as defaults.
nlohmann::ordered_json JsonSchema(const ConfigTable& table);

// Returns the schema of a map with these keys. Keys with may_change are marked with `change_mark`
// unless it is "". REQUIRES: the same as JsonSchema.
nlohmann::ordered_json MapSchema(const std::vector<ConfigKey>& keys,
                                 const std::string& change_mark = "");

// Returns a YAML file in which every key has its default, or an example if it has none, and its
// help as a comment. Optional keys without a default are commented out. REQUIRES: the same as
// JsonSchema.
std::string ConfigListing(const ConfigTable& table);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_SCHEMA_H_

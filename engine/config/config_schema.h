// A table of keys as a JSON Schema, which editors check and complete files by, and as a listing for
// people.
#ifndef MEGATRAIN_ENGINE_CONFIG_CONFIG_SCHEMA_H_
#define MEGATRAIN_ENGINE_CONFIG_CONFIG_SCHEMA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/config/config_key.h"

namespace megatrain {

// JSON Schema, draft 2020-12, of a file. Keys are bound to a fresh struct, whose fields are the
// defaults. Rules that span several keys are not in it.
nlohmann::ordered_json JsonSchema(const ConfigTable& table);

// The schema of a map with these keys.
nlohmann::ordered_json MapSchema(const std::vector<ConfigKey>& keys,
                                 const std::string& change_mark = "");

// The file with every key at its default, or at an example where there is none, and its help behind
// it. Keys that may be left out and have no default are commented out.
std::string ConfigListing(const ConfigTable& table);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_SCHEMA_H_

// What a JSON Schema says of a value: the part of draft 2020-12 that JsonSchema writes.
#ifndef MEGATRAIN_TESTS_ENGINE_CONFIG_SCHEMA_CHECK_H_
#define MEGATRAIN_TESTS_ENGINE_CONFIG_SCHEMA_CHECK_H_

#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/yaml_tree.h"

namespace megatrain {

// A YAML value as an editor sees it: plain words that are numbers or booleans are such.
nlohmann::ordered_json YamlToJson(const YamlNode& node);

// Why `value` does not fit the schema, with its path; "" if it does. A keyword that this check does
// not know is told as an error too.
std::string WrongBySchema(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& value,
                          const std::string& path = "");

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_CONFIG_SCHEMA_CHECK_H_

// What holds for every table of keys; the tests of the tables call these.
#ifndef MEGATRAIN_TESTS_ENGINE_CONFIG_TABLE_CHECKS_H_
#define MEGATRAIN_TESTS_ENGINE_CONFIG_TABLE_CHECKS_H_

#include <string>
#include <vector>

#include "engine/config/config_key.h"

namespace megatrain {

// Each key is read at its bounds and refused beyond them, by an error with its name; what is read
// is also right by the schema. `text` gives the keys that must be there. The table is bound to a
// struct that may be overwritten.
void CheckBounds(const ConfigTable& table, const std::string& text);

// Each key appears in the schema with type, description, and default or example; nothing else does.
void CheckSchema(const ConfigTable& table);

// The fenced YAML blocks of a Markdown page.
std::vector<std::string> YamlBlocks(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_CONFIG_TABLE_CHECKS_H_

// Reads YAML and command-line overrides into the fields that a table's keys are bound to.
//
// Errors are InvalidArgument with the message "FILE:LINE: KEY: defect, and what is expected", for
// example "job.yaml:3: training.steps: expects a whole number of 1 or more, got ten". In an error
// of an override, "--set KEY=VALUE" takes the place of FILE:LINE; if ParseYaml refuses the value,
// the line within it follows. LINE is left out if a key of the table is not given or the whole text
// has the defect. KEY is left out if ParseYaml refuses the text or an override's value, if the text
// is not a map, or if an override is not UTF-8 or not KEY=VALUE. An error about an unknown key
// names the nearest known one.
#ifndef MEGATRAIN_ENGINE_CONFIG_CONFIG_READER_H_
#define MEGATRAIN_ENGINE_CONFIG_CONFIG_READER_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/config/config_key.h"

namespace megatrain {

// The keys that were given, each with its place: "job.yaml:12" or "--set a.b=c".
using GivenKeys = std::map<std::string, std::string>;

// Reads `text` and `overrides` into the fields of `table`, and returns the keys that were given.
// Overrides win over the text, and later ones over earlier ones. `name` stands for the file in
// errors. Each override is "a.b=value". The value is plain text, or YAML if it begins with [, {, or
// a quote. An override addresses an existing entry of a list by its number: data.train.0.path=x.
// Fields whose key is not given keep their value. After an error some fields may have been changed.
absl::StatusOr<GivenKeys> ReadConfig(const ConfigTable& table, std::string_view text,
                                     const std::string& name,
                                     const std::vector<std::string>& overrides);

// Returns the content of the configuration file `path`. Returns NotFound if there is none, and
// InvalidArgument if it cannot be read. At most kYamlBytesMax + 1 bytes are read, which is enough
// for ReadConfig to refuse a longer file.
absl::StatusOr<std::string> ReadConfigText(const std::string& path);

// Reads `node`, an entry of a list, into the fields of `keys`. Returns nullopt, or the first error.
// ValueError::path then begins with the key, and is empty if the node is not a map.
std::optional<ValueError> ReadEntry(const YamlNode& node, const std::vector<ConfigKey>& keys);

// Describes an entry by the keys that it must have: "{path: ..., format: ...}". REQUIRES: at least
// one of `keys` must be given (ConfigKey::missing).
std::string EntryShape(const std::vector<ConfigKey>& keys);

// Makes the InvalidArgument status "WHERE: KEY: MESSAGE". Checks that span several keys use it too.
absl::Status KeyError(const std::string& where, const std::string& key, const std::string& message);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_READER_H_

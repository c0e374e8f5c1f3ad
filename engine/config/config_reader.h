// Reads YAML and command-line overrides into the fields that a table's keys are bound to.
//
// Errors are InvalidArgument. Their messages begin with the place:
// - "job.yaml:3: training.steps: expects ..." for a value of the text;
// - "job.yaml: KEY: ..." for a key that must be given and is not;
// - "job.yaml:3: ..." if ParseYaml refuses the text, and "job.yaml: ..." if it is no map;
// - "--set KEY=VALUE: KEY: ..." for an override, "--set KEY=VALUE:1: ..." if ParseYaml refuses its
//   value, and "--set KEY=VALUE: ..." if it is not UTF-8 or not KEY=VALUE.
// An error about an unknown key names the nearest known one.
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
// An empty text is a map without keys.
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
// one of `keys` must be given (ConfigKey::required_hint).
std::string EntryShape(const std::vector<ConfigKey>& keys);

// Makes the InvalidArgument status "WHERE: KEY: MESSAGE". Checks that span several keys use it too.
absl::Status KeyError(const std::string& where, const std::string& key, const std::string& message);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_READER_H_

// Reads YAML and command-line overrides into the fields that a table's keys are bound to.
//
// Errors are InvalidArgument with the message "FILE:LINE: KEY: defect, and what is expected". KEY
// is left out if the text is not YAML or not a map, or an override not KEY=VALUE; LINE if a key is
// missing or the defect is of the whole text. For an override, "--set KEY=VALUE" takes the place of
// FILE:LINE. For an unknown key the nearest known one is named.
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
// Overrides win over the text. `name` stands for the file in errors. Each override is "a.b=value".
// The value is plain text, or YAML if it begins with [, {, or a quote. Entries of a list are
// addressed by number: data.train.0.path=x. Fields whose key is not given keep their value. After
// an error some fields may have been changed.
absl::StatusOr<GivenKeys> ReadConfig(const ConfigTable& table, std::string_view text,
                                     const std::string& name,
                                     const std::vector<std::string>& overrides);

// Returns the content of the configuration file `path`. Returns NotFound if there is none, and
// InvalidArgument if it cannot be read. At most kYamlBytesMax + 1 bytes are read, which is enough
// for ReadConfig to refuse a longer file.
absl::StatusOr<std::string> ReadConfigText(const std::string& path);

// Reads `node`, an entry of a list, into the fields of `keys`. Returns the first error, whose path
// is the key's, or nullopt. Its path is empty if the node is not a map.
std::optional<ValueError> ReadEntry(const YamlNode& node, const std::vector<ConfigKey>& keys);

// Returns a description of an entry by the keys that it must have: "{path: ..., format: ...}".
// REQUIRES: it must have one.
std::string EntryShape(const std::vector<ConfigKey>& keys);

// Makes the InvalidArgument status "WHERE: KEY: MESSAGE". Checks that span several keys use it too.
absl::Status KeyError(const std::string& where, const std::string& key, const std::string& message);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_READER_H_

// YAML and overrides into the fields that a table's keys are bound to.
//
// Errors are InvalidArgument "FILE:LINE: KEY: what is wrong and what is expected"; an override's
// place is "--set KEY=VALUE". An unknown key names the nearest known one.
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

// The keys that were given, with their places: "job.yaml:12", "--set a.b=c".
using GivenKeys = std::map<std::string, std::string>;

// Reads `text`; `name` stands for the file in errors. Each override is "a.b=value": the value is
// plain text, or YAML if it begins with [, {, or a quote, and replaces the text's. Entries of a
// list go by their number: data.train.0.path=x.
absl::StatusOr<GivenKeys> ReadConfig(const ConfigTable& table, std::string_view text,
                                     const std::string& name,
                                     const std::vector<std::string>& overrides);

// The text of a file of keys. NotFound if there is none, else InvalidArgument says why it cannot be
// read.
absl::StatusOr<std::string> ReadConfigText(const std::string& path);

// Reads a map that is an entry of a list. The error's path is the key's.
std::optional<ValueError> ReadEntry(const YamlNode& node, const std::vector<ConfigKey>& keys);

// "{path: ..., format: ...}": what an entry with these keys needs.
std::string EntryShape(const std::vector<ConfigKey>& keys);

// "WHERE: KEY: MESSAGE", for checks that span several keys too.
absl::Status KeyError(const std::string& where, const std::string& key, const std::string& message);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_CONFIG_READER_H_

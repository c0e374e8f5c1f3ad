// YAML text as a plain tree whose nodes know where they stand, for configuration files.
//
// Refused rather than interpreted: aliases (so that no text grows when read), tags, duplicate keys,
// keys that are not plain words, several documents, and text over the limits below.
#ifndef MEGATRAIN_ENGINE_CONFIG_YAML_TREE_H_
#define MEGATRAIN_ENGINE_CONFIG_YAML_TREE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

inline constexpr size_t kYamlBytesMax = size_t{1} << 20;
inline constexpr size_t kYamlNodesMax = 20000;
inline constexpr size_t kYamlKeysOfMapMax = 500;
inline constexpr size_t kYamlDepthMax = 16;

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  std::string scalar;           // kScalar
  bool quoted = false;          // kScalar: written in quotes, so it is text whatever it looks like
  std::string where;            // "job.yaml:12", or "--set a.b=c"
  std::vector<YamlNode> items;  // kSequence
  std::vector<YamlEntry> entries;  // kMap, in file order

  // The value of `key` in a map, or null.
  const YamlNode* Find(std::string_view key) const;
  YamlNode* Find(std::string_view key);
  // "a map", "a list", "the text \"x\"", "x", "nothing": for messages.
  std::string Describe() const;
};

struct YamlEntry {
  YamlEntry(std::string k, YamlNode v) : key(std::move(k)), value(std::move(v)) {}
  std::string key;
  YamlNode value;
};

// One document of YAML 1.2. Errors are InvalidArgument and begin with `name`:LINE. An empty
// document is kNull.
absl::StatusOr<YamlNode> ParseYaml(std::string_view text, const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_YAML_TREE_H_

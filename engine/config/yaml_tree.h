// Parses YAML configuration files into a tree whose nodes have their file and line.
//
// The parser refuses aliases (so that text cannot grow when it is read), tags, duplicate keys, keys
// that are lists, maps or null, several documents, text that is not UTF-8 or has a zero byte, and
// text over the limits below.
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
inline constexpr size_t kYamlNodesMax = 20000;  // keys, scalars and nulls
inline constexpr size_t kYamlKeysOfMapMax = 500;
inline constexpr size_t kYamlDepthMax = 16;

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;         // kNull: null, ~ or no value
  std::string scalar;              // kScalar
  bool quoted = false;             // kScalar: in quotes or a block, so a text even if "1"
  std::string where;               // "job.yaml:12", or "--set a.b=c"
  std::vector<YamlNode> items;     // kSequence
  std::vector<YamlEntry> entries;  // kMap, in file order

  // Return the value of `key` if this is a map that has it, else null. Valid until `entries`
  // changes.
  const YamlNode* Find(std::string_view key) const;
  YamlNode* Find(std::string_view key);
  // Describes the node for messages: "a map", "a list", "the text \"x\"", "x" or "nothing".
  std::string Describe() const;
};

struct YamlEntry {
  YamlEntry(std::string k, YamlNode v) : key(std::move(k)), value(std::move(v)) {}
  std::string key;
  YamlNode value;
};

// Parses one document of YAML 1.2. A text that is empty or has only comments is kNull, with an
// empty `where`. Errors are InvalidArgument. The message begins with `name`:LINE, or with `name` if
// the defect is of the whole text.
absl::StatusOr<YamlNode> ParseYaml(std::string_view text, const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_YAML_TREE_H_

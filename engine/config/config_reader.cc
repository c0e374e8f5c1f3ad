#include "engine/config/config_reader.h"

#include <simdjson.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/config/unknown_key.h"

namespace megatrain {
namespace {

const ConfigKey* FindKey(const std::vector<ConfigKey>& keys, const std::string& path) {
  for (const ConfigKey& key : keys) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

bool IsSection(const std::vector<ConfigKey>& keys, const std::string& path) {
  for (const ConfigKey& key : keys) {
    if (absl::StartsWith(key.path, path + ".")) return true;
  }
  return false;
}

std::string UnknownKeyOf(const std::vector<ConfigKey>& keys, const std::string& path) {
  std::vector<std::string> known;  // sections too
  for (const ConfigKey& key : keys) {
    const size_t dot = key.path.find('.');
    if (dot != std::string::npos) known.push_back(key.path.substr(0, dot));
  }
  for (const ConfigKey& key : keys) known.push_back(key.path);
  return UnknownKey(path, known);
}

// ---- Overrides ----

// The value's place in the tree, made where it is missing.
absl::StatusOr<YamlNode*> Reach(const ConfigTable& table, const std::string& path,
                                const std::string& where, YamlNode* root) {
  YamlNode* node = root;
  std::string so_far;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    const ConfigKey* const list = table.Find(so_far);
    if (node->kind == YamlNode::Kind::kScalar ||
        (list != nullptr && node->kind == YamlNode::Kind::kMap)) {
      return KeyError(node->where, so_far,
                      absl::StrCat("expects ", list != nullptr ? list->value.expects : "a map",
                                   ", got ", node->Describe()));
    }
    if (node->kind == YamlNode::Kind::kSequence || list != nullptr) {
      size_t index = 0;
      if (!absl::SimpleAtoi(word, &index) || index >= node->items.size()) {
        return KeyError(where, path,
                        absl::StrCat(so_far, " is a list of ", node->items.size(),
                                     " entries, numbered from 0; there is no ", word));
      }
      node = &node->items[index];
    } else {
      node->kind = YamlNode::Kind::kMap;
      YamlNode* next = node->Find(word);
      if (next == nullptr) {
        if (node->entries.size() >= kYamlKeysOfMapMax) {
          return KeyError(where, path,
                          absl::StrCat("more than ", kYamlKeysOfMapMax, " keys in one map"));
        }
        node->entries.emplace_back(word, YamlNode());
        next = &node->entries.back().value;
        next->where = where;
      }
      node = next;
    }
    absl::StrAppend(&so_far, so_far.empty() ? "" : ".", word);
  }
  return node;
}

void SetWhere(YamlNode* node, const std::string& where) {
  node->where = where;
  for (YamlNode& item : node->items) SetWhere(&item, where);
  for (auto& [key, value] : node->entries) SetWhere(&value, where);
}

// Returns true if `path` lies in an entry of a list.
bool IsInList(const std::vector<ConfigKey>& keys, const std::string& path) {
  for (const ConfigKey& key : keys) {
    if (absl::StartsWith(path, key.path + ".") && key.value.schema.contains("items")) return true;
  }
  return false;
}

absl::Status ApplyOverride(const ConfigTable& table, const std::string& text, YamlNode* root) {
  const std::string where = absl::StrCat("--set ", text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expects KEY=VALUE, as in ", table.example));
  }
  if (text.find('\0') != std::string::npos || !simdjson::validate_utf8(text.data(), text.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", absl::CHexEscape(text), ": not UTF-8 text"));
  }
  const std::string path = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  if (table.Find(path) == nullptr && !IsInList(table.keys, path)) {
    return KeyError(where, path,
                    IsSection(table.keys, path) ? "is a section; name one of its keys"
                                                : UnknownKeyOf(table.keys, path));
  }
  YamlNode node;
  if (!value.empty() && std::strchr("[{\"'", value[0]) != nullptr) {
    MT_ASSIGN_OR_RETURN(node, ParseYaml(value, where));
  } else {
    node.kind = YamlNode::Kind::kScalar;
    node.scalar = value;
  }
  SetWhere(&node, where);
  MT_ASSIGN_OR_RETURN(YamlNode * place, Reach(table, path, where, root));
  *place = std::move(node);
  return absl::OkStatus();
}

// ---- The tree into the fields ----

// Reads the keys beneath `prefix`. The error's path is the key's, its message is not empty.
std::optional<ValueError> ReadMap(const YamlNode& map, const std::string& prefix,
                                  const std::vector<ConfigKey>& keys, GivenKeys* given) {
  for (const auto& [word, node] : map.entries) {
    const std::string path = prefix.empty() ? word : absl::StrCat(prefix, ".", word);
    if (absl::StrContains(word, '.')) {
      return ValueError{
          absl::StrCat("keys are nested in a file, as in ",
                       absl::StrReplaceAll(word, {{".", ": {"}}), ": ...}, not ", "joined by dots"),
          path, node.where};
    }
    if (const ConfigKey* key = FindKey(keys, path)) {
      if (std::optional<ValueError> error = key->value.read(node)) {
        if (error->message.empty()) {
          error->message = absl::StrCat("expects ", key->value.expects, ", got ", node.Describe(),
                                        key->value.note.empty() ? "" : "; ", key->value.note);
        }
        error->path = path + error->path;
        if (error->where.empty()) error->where = node.where;
        return error;
      }
      (*given)[path] = node.where;
    } else if (!IsSection(keys, path)) {
      return ValueError{UnknownKeyOf(keys, path), path, node.where};
    } else if (node.kind == YamlNode::Kind::kMap) {
      if (auto error = ReadMap(node, path, keys, given)) return error;
    } else if (node.kind != YamlNode::Kind::kNull) {  // a section without keys is empty
      return ValueError{absl::StrCat("expects a map, got ", node.Describe()), path, node.where};
    }
  }
  return std::nullopt;
}

// Reads all keys. The error's place is empty for a key that is missing.
std::optional<ValueError> ReadAll(const YamlNode& map, const std::vector<ConfigKey>& keys,
                                  GivenKeys* given) {
  if (auto error = ReadMap(map, "", keys, given)) return error;
  for (const ConfigKey& key : keys) {
    if (!key.required_hint.has_value()) continue;
    const auto found = given->find(key.path);
    if (found == given->end()) return ValueError{"is missing" + *key.required_hint, key.path, ""};
    if (key.value.text() == "[]") {
      return ValueError{"is missing or empty" + *key.required_hint, key.path, found->second};
    }
  }
  return std::nullopt;
}

}  // namespace

const ConfigKey* ConfigTable::Find(const std::string& path) const { return FindKey(keys, path); }

absl::Status KeyError(const std::string& where, const std::string& key,
                      const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", key, ": ", message));
}

std::string EntryShape(const std::vector<ConfigKey>& keys) {
  std::string shape;
  for (const ConfigKey& key : keys) {
    if (!key.required_hint.has_value()) continue;
    absl::StrAppend(&shape, shape.empty() ? "{" : ", ", key.path, ": ...");
  }
  return shape + "}";
}

std::optional<ValueError> ReadEntry(const YamlNode& node, const std::vector<ConfigKey>& keys) {
  if (node.kind != YamlNode::Kind::kMap) {
    return ValueError{absl::StrCat("expects ", EntryShape(keys), ", got ", node.Describe()), "",
                      ""};
  }
  GivenKeys given;
  return ReadAll(node, keys, &given);
}

absl::StatusOr<std::string> ReadConfigText(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  // One byte over the limit is enough to be refused, however large the file is.
  std::string text(kYamlBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.is_open() && !file.bad()) return text;
  const int code = errno;
  const char* why = code == EISDIR ? "is a directory" : std::strerror(code != 0 ? code : EIO);
  const std::string message = absl::StrCat(path, ": ", why);
  return code == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
}

absl::StatusOr<GivenKeys> ReadConfig(const ConfigTable& table, std::string_view text,
                                     const std::string& name,
                                     const std::vector<std::string>& overrides) {
  MT_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(text, name));
  if (root.kind == YamlNode::Kind::kNull) root.kind = YamlNode::Kind::kMap;
  if (root.kind != YamlNode::Kind::kMap) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": a ", table.file, " is a map of keys, this is ", root.Describe()));
  }
  for (const std::string& each : overrides) MT_RETURN_IF_ERROR(ApplyOverride(table, each, &root));
  GivenKeys given;
  if (const auto error = ReadAll(root, table.keys, &given)) {
    return KeyError(error->where.empty() ? name : error->where, error->path, error->message);
  }
  return given;
}

}  // namespace megatrain

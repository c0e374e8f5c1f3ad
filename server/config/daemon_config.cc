#include "server/config/daemon_config.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/job/nearest_key.h"
#include "engine/job/yaml_tree.h"
#include "server/config/daemon_keys.h"

namespace megatrain {
namespace {

absl::Status Invalid(const std::string& where, const std::string& key, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", key, ": ", message));
}

const DaemonKey* FindKey(const std::string& path) {
  for (const DaemonKey& key : DaemonKeys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

bool IsSection(const std::string& path) {
  for (const DaemonKey& key : DaemonKeys()) {
    if (absl::StartsWith(key.path, path + ".")) return true;
  }
  return false;
}

absl::Status UnknownKey(const std::string& where, const std::string& path) {
  std::vector<std::string> known = {"limits", "tls"};
  for (const DaemonKey& key : DaemonKeys()) known.push_back(key.path);
  return Invalid(where, path,
                 absl::StrCat("unknown key; did you mean ", NearestKey(path, known), "?"));
}

absl::Status SetKey(const DaemonKey& key, const YamlNode& node, DaemonConfig* config) {
  const std::string error = key.set(node, config);
  return error.empty() ? absl::OkStatus() : Invalid(node.where, key.path, error);
}

absl::Status ReadSection(const YamlNode& section, const std::string& prefix, DaemonConfig* config) {
  for (const auto& [word, node] : section.entries) {
    const std::string path = prefix.empty() ? word : absl::StrCat(prefix, ".", word);
    if (absl::StrContains(word, '.')) {
      return Invalid(node.where, path,
                     "keys are nested in a file, as in tls: {key: \"\"}, not joined by dots");
    }
    if (const DaemonKey* key = FindKey(path)) {
      MT_RETURN_IF_ERROR(SetKey(*key, node, config));
    } else if (!IsSection(path)) {
      return UnknownKey(node.where, path);
    } else if (node.kind == YamlNode::Kind::kMap) {
      MT_RETURN_IF_ERROR(ReadSection(node, path, config));
    } else if (node.kind != YamlNode::Kind::kNull) {  // a section without keys is empty
      return Invalid(node.where, path, absl::StrCat("expects a map, got ", node.Describe()));
    }
  }
  return absl::OkStatus();
}

struct Override {
  const DaemonKey* key = nullptr;
  YamlNode value;
};

absl::StatusOr<Override> ParseOverride(const std::string& text) {
  const std::string where = absl::StrCat("--set ", text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expects KEY=VALUE, as in host_memory=24GiB"));
  }
  const std::string path = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  Override result;
  result.key = FindKey(path);
  if (result.key == nullptr) {
    if (IsSection(path)) return Invalid(where, path, "is a section; name one of its keys");
    return UnknownKey(where, path);
  }
  if (!value.empty() && std::strchr("[{\"'", value[0]) != nullptr) {
    MT_ASSIGN_OR_RETURN(result.value, ParseYaml(value, where));
  } else {
    result.value.kind = YamlNode::Kind::kScalar;
    result.value.scalar = value;
  }
  result.value.where = where;
  return result;
}

// Takes a replaced value out of the tree, so that it need not be right.
void Remove(const std::string& path, YamlNode* root) {
  YamlNode* section = root;
  std::string word = path;
  if (const size_t dot = path.find('.'); dot != std::string::npos) {
    section = root->Find(path.substr(0, dot));
    word = path.substr(dot + 1);
  }
  if (section == nullptr) return;
  std::erase_if(section->entries, [&word](const YamlEntry& entry) { return entry.key == word; });
}

// What is served to a network is encrypted, and callers prove who they are.
absl::Status CheckTcp(const DaemonConfig& config, const std::string& name) {
  if (config.tls_certificate.empty() != config.tls_key.empty()) {
    return Invalid(name, config.tls_key.empty() ? "tls.key" : "tls.certificate",
                   "is missing; tls.certificate and tls.key belong together");
  }
  if (!HasTcp(config)) return absl::OkStatus();
  if (config.tls_certificate.empty()) {
    return Invalid(name, "listen",
                   "TCP, loopback too, is served with TLS only: set tls.certificate and tls.key, "
                   "or listen on a Unix socket");
  }
  if (config.tls_client_ca.empty() && config.tokens_file.empty()) {
    return Invalid(name, "listen",
                   "callers on TCP must prove who they are: set tokens_file (`megatraind token add "
                   "USER` makes tokens) or tls.client_ca (for client certificates), or both");
  }
  return absl::OkStatus();
}

}  // namespace

bool HasTcp(const DaemonConfig& config) {
  return std::any_of(config.listen.begin(), config.listen.end(), [](const std::string& address) {
    return !absl::StartsWith(address, "unix:");
  });
}

std::vector<std::string> KeysThatNeedRestart(const DaemonConfig& running,
                                             const DaemonConfig& read) {
  std::vector<std::string> keys;
  const auto compare = [&keys](const char* key, const auto& a, const auto& b) {
    if (a != b) keys.push_back(key);
  };
  compare("listen", running.listen, read.listen);
  compare("metrics_listen", running.metrics_listen, read.metrics_listen);
  compare("state_directory", running.state_directory, read.state_directory);
  compare("host_memory", running.host_memory, read.host_memory);
  compare("device", running.device, read.device);
  compare("threads", running.threads, read.threads);
  compare("roots", running.roots, read.roots);
  if (!HasTcp(running)) return keys;
  // Listeners ask for certificates, and look at tokens, or they do not.
  compare("tls.client_ca", running.tls_client_ca.empty(), read.tls_client_ca.empty());
  compare("tokens_file", running.tokens_file.empty(), read.tokens_file.empty());
  return keys;
}

absl::StatusOr<DaemonConfig> ParseDaemonConfig(const std::string& text, const std::string& name,
                                               const std::vector<std::string>& overrides) {
  MT_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(text, name));
  if (root.kind != YamlNode::Kind::kMap && root.kind != YamlNode::Kind::kNull) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": a configuration is a map of keys, this is ", root.Describe()));
  }
  std::vector<Override> replaced;
  for (const std::string& override_text : overrides) {
    MT_ASSIGN_OR_RETURN(Override parsed, ParseOverride(override_text));
    Remove(parsed.key->path, &root);
    replaced.push_back(std::move(parsed));
  }
  DaemonConfig config;
  MT_RETURN_IF_ERROR(ReadSection(root, "", &config));
  for (const Override& each : replaced) {
    MT_RETURN_IF_ERROR(SetKey(*each.key, each.value, &config));
  }
  MT_RETURN_IF_ERROR(CheckTcp(config, name));
  return config;
}

absl::StatusOr<DaemonConfig> ReadDaemonConfig(const std::string& path,
                                              const std::vector<std::string>& overrides) {
  if (path.empty()) return ParseDaemonConfig("", "the defaults", overrides);
  absl::StatusOr<std::string> text =
      ReadWholeFile(PosixFileSystem(), path, static_cast<int64_t>(kYamlBytesMax));
  // Whatever keeps the file from being read, it is the configuration that is wrong.
  if (!text.ok() && text.status().code() != absl::StatusCode::kNotFound) {
    return absl::InvalidArgumentError(text.status().message());
  }
  if (!text.ok()) return text.status();
  return ParseDaemonConfig(*text, path, overrides);
}

}  // namespace megatrain

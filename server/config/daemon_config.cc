#include "server/config/daemon_config.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/config/config_reader.h"
#include "server/config/daemon_keys.h"

namespace megatrain {
namespace {

absl::Status CheckListen(const DaemonConfig& config, const GivenKeys& given) {
  const std::vector<std::string>& addresses = config.listen;
  if (addresses.empty()) {
    return KeyError(given.at("listen"), "listen", "expects at least one address");
  }
  for (auto each = addresses.begin(); each != addresses.end(); ++each) {
    if (std::find(addresses.begin(), each, *each) == each) continue;
    return KeyError(given.at("listen"), "listen", absl::StrCat(*each, " is there twice"));
  }
  return absl::OkStatus();
}

// What is served to a network is encrypted, and callers prove who they are.
absl::Status CheckTcp(const DaemonConfig& config, const std::string& name) {
  if (config.tls_certificate.empty() != config.tls_key.empty()) {
    return KeyError(name, config.tls_key.empty() ? "tls.key" : "tls.certificate",
                    "is missing; tls.certificate and tls.key belong together");
  }
  if (!HasTcp(config)) return absl::OkStatus();
  if (config.tls_certificate.empty()) {
    return KeyError(name, "listen",
                    "TCP, loopback too, is served with TLS only: set tls.certificate and tls.key, "
                    "or listen on a Unix socket");
  }
  if (config.tls_client_ca.empty() && config.tokens_file.empty()) {
    return KeyError(
        name, "listen",
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

absl::StatusOr<std::vector<std::string>> JobRoots(const DaemonConfig& config, bool shared) {
  if (!config.roots.has_value()) {
    return shared ? std::vector<std::string>{"/srv/megatrain"} : std::vector<std::string>();
  }
  if (config.roots->empty() && shared) {
    return absl::InvalidArgumentError(
        "roots: names no directory, and others than the daemon's own user can reach it; name the "
        "directories that jobs may use, as in [/srv/megatrain]");
  }
  return *config.roots;
}

std::vector<std::string> KeysThatNeedRestart(const DaemonConfig& running,
                                             const DaemonConfig& read) {
  DaemonConfig before = running, after = read;  // keys are bound to what they may write to
  const ConfigTable old_table = DaemonKeys(&before), new_table = DaemonKeys(&after);
  std::vector<std::string> keys;
  for (size_t i = 0; i < old_table.keys.size(); ++i) {
    const ConfigKey& key = old_table.keys[i];
    if (!key.may_change && key.value.text() != new_table.keys[i].value.text()) {
      keys.push_back(key.path);
    }
  }
  if (!HasTcp(running)) return keys;
  // Listeners ask for certificates, and look at tokens, or they do not.
  if (running.tls_client_ca.empty() != read.tls_client_ca.empty()) keys.push_back("tls.client_ca");
  if (running.tokens_file.empty() != read.tokens_file.empty()) keys.push_back("tokens_file");
  return keys;
}

absl::StatusOr<DaemonConfig> ParseDaemonConfig(const std::string& text, const std::string& name,
                                               const std::vector<std::string>& overrides) {
  DaemonConfig config;
  MT_ASSIGN_OR_RETURN(const GivenKeys given,
                      ReadConfig(DaemonKeys(&config), text, name, overrides));
  MT_RETURN_IF_ERROR(CheckListen(config, given));
  MT_RETURN_IF_ERROR(CheckTcp(config, name));
  // Paths in it are compared with those of jobs, as texts.
  std::string& state = config.state_directory;
  state = std::filesystem::path(state).lexically_normal().string();
  if (state.size() > 1 && state.back() == '/') state.pop_back();
  return config;
}

absl::StatusOr<DaemonConfig> ReadDaemonConfig(const std::string& path,
                                              const std::vector<std::string>& overrides) {
  if (path.empty()) return ParseDaemonConfig("", "the defaults", overrides);
  MT_ASSIGN_OR_RETURN(const std::string text, ReadConfigText(path));
  return ParseDaemonConfig(text, path, overrides);
}

}  // namespace megatrain

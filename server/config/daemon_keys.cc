#include "server/config/daemon_keys.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/job/device_name.h"
#include "server/metrics/metrics_address.h"

namespace megatrain {
namespace {

using Set = std::function<std::string(const YamlNode& node, DaemonConfig* config)>;

constexpr int64_t kThreadsMax = 4096;
constexpr int64_t kJobsMax = 1000000;

std::string Expects(const std::string& what, const YamlNode& node) {
  return absl::StrCat("expects ", what, ", got ", node.Describe());
}

bool IsPlain(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.quoted && !node.scalar.empty();
}

// ---- Values of keys ----

std::string ReadText(const YamlNode& node, const std::string& expects, std::string* text) {
  if (node.kind != YamlNode::Kind::kScalar) return Expects(expects, node);
  *text = node.scalar;
  return "";
}

std::string ReadTexts(const YamlNode& node, const std::string& expects,
                      std::vector<std::string>* texts) {
  if (node.kind != YamlNode::Kind::kSequence) return Expects(expects, node);
  texts->clear();
  for (const YamlNode& item : node.items) {
    if (item.kind != YamlNode::Kind::kScalar || item.scalar.empty()) return Expects(expects, node);
    texts->push_back(item.scalar);
  }
  return "";
}

std::string ReadWhole(const YamlNode& node, int64_t max, int64_t* value) {
  int64_t read = 0;
  if (!IsPlain(node) || !absl::SimpleAtoi(node.scalar, &read) || read < 0 || read > max) {
    return Expects(absl::StrCat("a whole number from 0 to ", max), node);
  }
  *value = read;
  return "";
}

std::string ReadBytes(const YamlNode& node, int64_t* value) {
  if (IsPlain(node)) {
    if (const absl::StatusOr<int64_t> bytes = ParseBytes(node.scalar); bytes.ok()) {
      *value = *bytes;
      return "";
    }
  }
  return Expects("a size in bytes, or with KiB, MiB, GiB or TiB, as in 24GiB", node);
}

// ---- Keys ----

// What is wrong with an address "HOST:PORT", or "".
std::string CheckHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  int port = -1;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool good_host = !host.empty() && host.find_first_of(", \t/") == std::string::npos &&
                         (bracketed || host.find_first_of("[]:") == std::string::npos);
  if (colon == std::string::npos || !good_host ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::StrCat("expects unix:/PATH or HOST:PORT, as in 0.0.0.0:9463 or [::1]:9463, got ",
                        address);
  }
  return "";
}

std::string SetListen(const YamlNode& node, DaemonConfig* config) {
  std::vector<std::string> addresses;
  const std::string expects =
      "a list of addresses, as in [\"unix:/run/megatrain/megatrain.sock\", \"0.0.0.0:9463\"]";
  if (std::string error = ReadTexts(node, expects, &addresses); !error.empty()) return error;
  if (addresses.empty()) return "expects at least one address";
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!absl::StartsWith(addresses[i], "unix:")) {
      if (std::string error = CheckHostPort(addresses[i]); !error.empty()) return error;
    } else if (!absl::StartsWith(addresses[i], "unix:/")) {
      return absl::StrCat("expects an absolute path after unix:, got ", addresses[i]);
    }
    for (size_t j = 0; j < i; ++j) {
      if (addresses[i] == addresses[j]) return absl::StrCat(addresses[i], " is there twice");
    }
  }
  config->listen = std::move(addresses);
  return "";
}

Set FilePath(std::string DaemonConfig::*path) {
  return [path](const YamlNode& node, DaemonConfig* config) {
    std::string text;
    const std::string expects = "the absolute path of a file, or \"\" for none";
    if (std::string error = ReadText(node, expects, &text); !error.empty()) return error;
    if (!text.empty() && text[0] != '/') return Expects(expects, node);
    config->*path = std::move(text);
    return std::string();
  };
}

std::string SetMetricsListen(const YamlNode& node, DaemonConfig* config) {
  std::string address;
  const std::string expects = "HOST:PORT, or \"\" for none";
  if (std::string error = ReadText(node, expects, &address); !error.empty()) return error;
  if (!address.empty()) {
    if (std::string error = CheckMetricsAddress(address); !error.empty()) return error;
  }
  config->metrics_listen = std::move(address);
  return "";
}

std::string SetStateDirectory(const YamlNode& node, DaemonConfig* config) {
  std::string path;
  const std::string expects = "an absolute path";
  if (std::string error = ReadText(node, expects, &path); !error.empty()) return error;
  if (!absl::StartsWith(path, "/")) return Expects(expects, node);
  config->state_directory = std::move(path);
  return "";
}

std::string SetRoots(const YamlNode& node, DaemonConfig* config) {
  std::vector<std::string> roots;
  const std::string expects = "a list of absolute directories, as in [/srv/megatrain]";
  if (std::string error = ReadTexts(node, expects, &roots); !error.empty()) return error;
  for (const std::string& root : roots) {
    if (!absl::StartsWith(root, "/")) return absl::StrCat("expects ", expects, ", got ", root);
  }
  config->roots = std::move(roots);
  return "";
}

std::string SetDevice(const YamlNode& node, DaemonConfig* config) {
  std::string device;
  if (std::string error = ReadText(node, kDeviceNames, &device); !error.empty()) return error;
  if (!ParseDeviceName(device).has_value()) return Expects(kDeviceNames, node);
  config->device = std::move(device);
  return "";
}

std::string SetLogLevel(const YamlNode& node, DaemonConfig* config) {
  std::string level;
  const std::string expects = "info, warning or error";
  if (std::string error = ReadText(node, expects, &level); !error.empty()) return error;
  if (level != "info" && level != "warning" && level != "error") return Expects(expects, node);
  config->log_level = std::move(level);
  return "";
}

}  // namespace

const std::vector<DaemonKey>& DaemonKeys() {
  static const auto& keys = *new std::vector<DaemonKey>{
      {"listen", SetListen},
      {"metrics_listen", SetMetricsListen},
      {"state_directory", SetStateDirectory},
      {"host_memory", [](const YamlNode& node,
                         DaemonConfig* config) { return ReadBytes(node, &config->host_memory); }},
      {"device", SetDevice},
      {"threads",
       [](const YamlNode& node, DaemonConfig* config) {
         return ReadWhole(node, kThreadsMax, &config->threads);
       }},
      {"roots", SetRoots},
      {"administrators",
       [](const YamlNode& node, DaemonConfig* config) {
         return ReadTexts(node, "a list of user names, as in [anna]", &config->administrators);
       }},
      {"keep_ended_jobs_per_user",
       [](const YamlNode& node, DaemonConfig* config) {
         return ReadWhole(node, kJobsMax, &config->keep_ended_jobs);
       }},
      {kQueuedJobsLimit,
       [](const YamlNode& node, DaemonConfig* config) {
         return ReadWhole(node, kJobsMax, &config->limits.queued_jobs);
       }},
      {kRunningJobsLimit,
       [](const YamlNode& node, DaemonConfig* config) {
         return ReadWhole(node, kJobsMax, &config->limits.running_jobs);
       }},
      {kHostMemoryLimit,
       [](const YamlNode& node, DaemonConfig* config) {
         return ReadBytes(node, &config->limits.host_bytes);
       }},
      {kDiskLimit,
       [](const YamlNode& node, DaemonConfig* config) {
         return ReadBytes(node, &config->limits.disk_bytes);
       }},
      {"tls.certificate", FilePath(&DaemonConfig::tls_certificate)},
      {"tls.key", FilePath(&DaemonConfig::tls_key)},
      {"tls.client_ca", FilePath(&DaemonConfig::tls_client_ca)},
      {"tokens_file", FilePath(&DaemonConfig::tokens_file)},
      {"log_level", SetLogLevel},
  };
  return keys;
}

}  // namespace megatrain

// Every key of the daemon's configuration, stated once: its path, what it expects, how it is read.
#ifndef MEGATRAIN_SERVER_CONFIG_DAEMON_KEYS_H_
#define MEGATRAIN_SERVER_CONFIG_DAEMON_KEYS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/job/yaml_tree.h"
#include "server/config/daemon_config.h"

namespace megatrain {

struct DaemonKey {
  std::string path;  // "limits.queued_jobs_per_user"
  // Reads the value; what is wrong with it, without its place, or "".
  std::function<std::string(const YamlNode& node, DaemonConfig* config)> set;
};

// In the order of the configuration's documentation.
const std::vector<DaemonKey>& DaemonKeys();

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_CONFIG_DAEMON_KEYS_H_

#include "server/daemon/job_roots.h"

namespace megatrain {

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

}  // namespace megatrain

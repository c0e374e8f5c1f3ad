// Chooses the directories that jobs' paths must lie beneath.
#ifndef MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_
#define MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/daemon_config.h"

namespace megatrain {

// Returns those of the configuration. If it has no such key: /srv/megatrain for a daemon that
// others than its own user can reach (`shared`), and an empty list, no bounds, for a private one,
// where that user's own rights decide. InvalidArgument if a shared daemon is configured to have
// none.
absl::StatusOr<std::vector<std::string>> JobRoots(const DaemonConfig& config, bool shared);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_

// Chooses the directories that jobs' paths must lie beneath.
#ifndef MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_
#define MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/daemon_config.h"

namespace megatrain {

// Returns the configured roots. If the configuration has no such key, returns /srv/megatrain for a
// daemon that others than its own user can reach (`shared`), and an empty list for a private one.
// An empty list sets no bounds: the rights of the daemon's user decide. InvalidArgument if `shared`
// and the configured list is empty.
absl::StatusOr<std::vector<std::string>> JobRoots(const DaemonConfig& config, bool shared);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_

// The directories that jobs' paths must lie beneath.
#ifndef MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_
#define MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/daemon_config.h"

namespace megatrain {

// Those of the configuration; where it names none, /srv/megatrain for a daemon that others than its
// own user can reach (`shared`), and no bounds, an empty list, for a private one: that user's own
// rights decide. InvalidArgument if a shared one is told to have none.
absl::StatusOr<std::vector<std::string>> JobRoots(const DaemonConfig& config, bool shared);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_JOB_ROOTS_H_

// Work that Ctrl-C leaves: it is only a view of a job, which goes on.
#ifndef MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_
#define MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

#include <functional>

#include "absl/status/status.h"
#include "client/connection/signal_watch.h"

namespace megatrain::client {

// Runs `run` in a thread and gives what it returns. SIGINT, SIGTERM and SIGHUP call `stop`, which
// must make `run` return soon; the result is then Cancelled. `signals` must watch these.
absl::Status RunDetachable(SignalWatch* signals, const std::function<absl::Status()>& run,
                           const std::function<void()>& stop);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

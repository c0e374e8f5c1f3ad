// Runs work that Ctrl-C ends: a view of a job, which goes on itself.
#ifndef MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_
#define MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

#include <functional>

#include "absl/status/status.h"
#include "client/connection/signal_watch.h"

namespace megatrain::client {

// Runs `run` in a thread of its own, waits for its end and returns its result. On SIGINT, SIGTERM
// or SIGHUP calls `stop` on this thread, which must make `run` return soon; the result is then
// Cancelled. REQUIRES: `signals` watches these signals.
absl::Status RunDetachable(SignalWatch* signals, const std::function<absl::Status()>& run,
                           const std::function<void()>& stop);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

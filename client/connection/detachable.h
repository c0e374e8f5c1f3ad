// Runs a view of a job that Ctrl-C ends, while the job itself continues. `watch` and `submit
// --watch` do this by themselves (watch_session.h), because they redraw and suspend.
#ifndef MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_
#define MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

#include <functional>

#include "absl/status/status.h"
#include "client/connection/signal_watch.h"

namespace megatrain::client {

// Calls `run` once, on a thread of its own, waits for it and returns its result. When `signals`
// reports a signal, calls `stop` once on the calling thread: before `run` has begun, while it runs,
// or after it has returned. `stop` must make `run` return soon. The result is then Cancelled.
// Returns Internal, without calling `run`, if the system has no descriptor left. REQUIRES:
// `signals` watches SIGINT, SIGTERM and SIGHUP and no other signal.
absl::Status RunDetachable(SignalWatch* signals, const std::function<absl::Status()>& run,
                           const std::function<void()>& stop);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

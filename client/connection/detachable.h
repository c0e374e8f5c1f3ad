// Runs a view of a job that Ctrl-C ends, while the job itself continues. The commands `watch` and
// `submit --watch` use watch_session.h in place of this, because they redraw and suspend.
#ifndef MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_
#define MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

#include <functional>

#include "absl/status/status.h"
#include "client/connection/signal_watch.h"

namespace megatrain::client {

// Calls `run` once, on a thread of its own, waits for it and returns its result. When `signals`
// reports the first signal that leaves, calls `stop` on the calling thread, and returns Cancelled
// in place of the result. `stop` must make `run` return soon. It may be called before `run` has
// begun, while `run` runs, or after `run` has returned. Returns Internal, without calling `run`, if
// the process has no descriptor left. REQUIRES: `signals` watches SIGINT, SIGTERM and SIGHUP, which
// leave, and perhaps SIGTSTP, which suspends the process, and SIGWINCH, which does nothing.
absl::Status RunDetachable(SignalWatch* signals, const std::function<absl::Status()>& run,
                           const std::function<void()>& stop);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_DETACHABLE_H_

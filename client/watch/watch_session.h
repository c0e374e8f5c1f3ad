// Watches a job until it ends or the user leaves.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_SESSION_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_SESSION_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/connection/connection.h"
#include "client/connection/signal_watch.h"
#include "client/context/invocation.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain::client {

// Shows a live view on a terminal and plain lines elsewhere, then a closing line, also after an
// error or a signal, unless the server has sent no job. With JSON or YAML output it prints records
// (watch_json.h) and no closing line. With --quiet it prints nothing. `job` is "jobs/ID".
//
// Returns the job as it ended. Returns Cancelled if SIGINT, SIGTERM or SIGHUP came, and the job
// goes on. Returns a stream's error if the job's events, metrics or log cannot be read, and
// Internal if the server sent no job. REQUIRES: `signals` watches these three signals, and SIGWINCH
// and SIGTSTP for redrawing and suspending.
absl::StatusOr<v1::Job> WatchJob(const Invocation& invocation, Connection* connection,
                                 const std::string& job, SignalWatch* signals);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_SESSION_H_

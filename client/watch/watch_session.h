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

// Shows a live view on a terminal, plain lines elsewhere, and a closing line. Returns the job as it
// ended. Cancelled if a signal came: the job goes on. Else the server's error. `job` is "jobs/ID";
// `signals` must watch SIGINT, SIGTERM and SIGHUP.
absl::StatusOr<v1::Job> WatchJob(const Invocation& invocation, Connection* connection,
                                 const std::string& job, SignalWatch* signals);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_SESSION_H_

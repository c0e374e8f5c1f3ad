// megatrain watch JOB
#include <signal.h>

#include <memory>
#include <string>

#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/connection/signal_watch.h"
#include "client/context/job_name.h"
#include "client/watch/watch_session.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

absl::StatusOr<ExitCode> Watch(const Invocation& invocation, const std::string& argument) {
  SignalWatch signals({SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP});
  MT_ASSIGN_OR_RETURN(const std::string name, ParseJobName(argument));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  MT_ASSIGN_OR_RETURN(const v1::Job job, WatchJob(invocation, connection.get(), name, &signals));
  if (invocation.quiet) invocation.Print(name + "\n");
  return ExitCodeOfJob(job);
}

}  // namespace

void AddWatchCommand(CLI::App* app, CommandContext context) {
  const auto job = std::make_shared<std::string>();
  AddJobArgument(AddCommand(app, "watch", "A live view of a job; Ctrl-C leaves it running", context,
                            [context, job] { return Watch(*context.invocation, *job); }),
                 job.get());
}

}  // namespace megatrain::client

// megatrain wait JOB
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/connection/detachable.h"
#include "client/connection/resumable_stream.h"
#include "client/connection/signal_watch.h"
#include "client/context/job_name.h"
#include "client/output/proto_json.h"
#include "client/output/text.h"
#include "client/watch/watch_model.h"
#include "client/watch/watch_view.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

absl::StatusOr<ExitCode> Wait(const Invocation& invocation, const std::string& argument) {
  SignalWatch signals({SIGINT, SIGTERM, SIGHUP});
  MT_ASSIGN_OR_RETURN(const std::string name, ParseJobName(argument));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  WatchModel model;
  bool lost = false;
  using Stream = ResumableStream<v1::WatchJobResponse>;
  Stream stream(connection.get(),
                [&](grpc::ClientContext* context, int64_t start) {
                  v1::WatchJobRequest request;
                  request.set_name(name);
                  request.set_start_sequence(start);
                  request.set_view(invocation.view());
                  return connection->jobs()->WatchJob(context, request);
                },
                {.message = [&](const v1::WatchJobResponse& message) { model.Apply(message); },
                 .lost =
                     [&](const absl::Status& status, absl::Duration) {
                       if (!lost) {
                         invocation.Note(absl::StrCat("the server is away, waiting on: ",
                                                      Printable(status.message())));
                       }
                       lost = true;
                     },
                 .restored = [&] { lost = false; },
                 .restarted = nullptr});
  MT_RETURN_IF_ERROR(RunDetachable(
      &signals, [&] { return stream.Run(1); }, [&] { stream.Stop(); }));
  const v1::Job job = model.state().job.value_or(v1::Job());
  if (invocation.quiet) {
    invocation.Print(job.name() + "\n");
  } else if (invocation.format() != OutputFormat::kTable) {
    invocation.PrintObject(ToJson(job));
  } else {
    invocation.Print(ClosingLine(job) + "\n");
  }
  return ExitCodeOfJob(job);
}

}  // namespace

void AddWaitCommand(CLI::App* app, CommandContext context) {
  const auto job = std::make_shared<std::string>();
  AddJobArgument(
      AddCommand(app, "wait", "Wait until a job ends; exit code 1 if it failed or was cancelled",
                 context, [context, job] { return Wait(*context.invocation, *job); }),
      job.get());
}

}  // namespace megatrain::client

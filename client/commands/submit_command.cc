// megatrain submit JOB.yaml
#include <signal.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/command.h"
#include "client/connection/cancellation.h"
#include "client/connection/connection.h"
#include "client/connection/detachable.h"
#include "client/connection/rpc_error.h"
#include "client/connection/signal_watch.h"
#include "client/context/job_file.h"
#include "client/output/proto_json.h"
#include "client/watch/watch_session.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct SubmitArguments {
  std::string file;
  std::vector<std::string> overrides;
  std::string request_id;
  std::vector<std::string> allow_change;
  int priority = 0;
  bool watch = false;
  bool validate_only = false;
};

// A random UUID (version 4).
std::string NewUuid() {
  std::random_device random;
  const auto word = [&random] { return static_cast<uint32_t>(random()); };
  const uint32_t a = word(), b = word(), c = word(), d = word();
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", a, b >> 16, b & 0xFFF,
                         0x8000 | (c >> 16 & 0x3FFF), c & 0xFFFF, d);
}

void PrintSubmitted(const Invocation& invocation, const SubmitArguments& arguments,
                    const v1::Job& job) {
  const std::string name = Printable(job.display_name());
  if (invocation.quiet) {
    if (!arguments.validate_only) invocation.Print(job.name() + "\n");
  } else if (invocation.format() != OutputFormat::kTable) {
    invocation.PrintObject(ToJson(job));
  } else if (arguments.validate_only) {
    invocation.Print(absl::StrCat(name, " is valid and fits; nothing was submitted\n"));
  } else {
    invocation.Print(absl::StrCat("submitted ", name, ": ", job.name(), "\n"));
  }
}

// Returns Cancelled if a signal came before the answer.
absl::StatusOr<v1::Job> Create(Connection* connection, const v1::CreateJobRequest& request,
                               SignalWatch* signals) {
  absl::StatusOr<v1::Job> job;
  Cancellation cancellation;
  const absl::Status status = RunDetachable(
      signals,
      [&] {
        job = connection->Call(connection->jobs(), &v1::JobService::Stub::CreateJob, request,
                               kSubmitTimeout, &cancellation);
        return job.status();
      },
      [&] { cancellation.Cancel(); });
  if (absl::IsCancelled(status) && !job.ok()) {
    return absl::CancelledError("left before the server had answered");
  }
  if (!status.ok() && !absl::IsCancelled(status)) return status;
  return job;  // also if the answer was faster than a signal
}

absl::StatusOr<ExitCode> Submit(const Invocation& invocation, const SubmitArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const ServerAddress server, invocation.Server());
  v1::CreateJobRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_job()->mutable_file(),
                      ReadJobFile(arguments.file, arguments.overrides, server));
  // Before the connection's threads are there, and after all that waits without taking signals.
  SignalWatch signals({SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP});
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  request.mutable_job()->set_priority(arguments.priority);
  *request.mutable_job()->mutable_allow_change() = {arguments.allow_change.begin(),
                                                    arguments.allow_change.end()};
  request.set_request_id(arguments.request_id.empty() ? NewUuid() : arguments.request_id);
  request.set_validate_only(arguments.validate_only);
  request.set_view(invocation.view());
  const absl::StatusOr<v1::Job> job = Create(connection.get(), request, &signals);
  if (!job.ok()) {
    const ExitCode code = ExitCodeOf(job.status());
    if ((code == kExitUnreachable || code == kExitInterrupted) && !arguments.validate_only) {
      invocation.Note(
          absl::StrCat("if the server did get it, this submits it once, not twice: "
                       "the same command with --request-id ",
                       request.request_id()));
    }
    return job.status();
  }
  // As records the job opens what is watched.
  const bool as_records = arguments.watch && invocation.format() != OutputFormat::kTable;
  if (!as_records || invocation.quiet) PrintSubmitted(invocation, arguments, *job);
  if (!arguments.watch) return kExitDone;
  MT_ASSIGN_OR_RETURN(const v1::Job ended,
                      WatchJob(invocation, connection.get(), job->name(), &signals));
  return ExitCodeOfJob(ended);
}

}  // namespace

void AddSubmitCommand(CLI::App* app, CommandContext context) {
  const auto arguments = std::make_shared<SubmitArguments>();
  CLI::App* const command =
      AddCommand(app, "submit", "Put a job in the queue; its name is the last word that is printed",
                 context, [context, arguments] { return Submit(*context.invocation, *arguments); });
  AddJobFileArguments(command, &arguments->file, &arguments->overrides);
  command
      ->add_option("--request-id", arguments->request_id,
                   "the same id submits the same job only once, however often it is sent")
      ->type_name("UUID");
  command->add_option("--priority", arguments->priority, "-100 to 100; above 0 for administrators")
      ->type_name("N");
  AddAllowChangeOption(command, &arguments->allow_change);
  CLI::Option* const watch =
      command->add_flag("--watch", arguments->watch, "then watch it; Ctrl-C leaves it running");
  command->add_flag("--validate-only", arguments->validate_only, "check it and submit nothing")
      ->excludes(watch);
}

}  // namespace megatrain::client

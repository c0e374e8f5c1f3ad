// megatrain logs JOB
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
#include "client/output/proto_time.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct LogsArguments {
  std::string job;
  bool follow = false;
};

void Print(const Invocation& invocation, const v1::StreamLogsResponse& message) {
  if (message.has_missed()) {
    invocation.Note(absl::StrCat("lines ", message.missed().first_sequence(), " to ",
                                 message.missed().last_sequence(), " are no longer kept"));
  }
  for (const v1::LogLine& line : message.batch().lines()) {
    if (invocation.format() == OutputFormat::kTable) {
      invocation.Print(
          absl::StrCat(FormatLocalTime(ToTime(line.time()), invocation.environment().zone), "  ",
                       Printable(line.text()), "\n"));
    } else {
      invocation.PrintRecord(ToJson(line));
    }
  }
}

absl::StatusOr<ExitCode> Logs(const Invocation& invocation, const LogsArguments& arguments) {
  SignalWatch signals({SIGINT, SIGTERM, SIGHUP});
  MT_ASSIGN_OR_RETURN(const std::string name, ParseJobName(arguments.job));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  using Stream = ResumableStream<v1::StreamLogsResponse>;
  Stream stream(
      connection.get(),
      [&](grpc::ClientContext* context, int64_t start) {
        v1::StreamLogsRequest request;
        request.set_name(name);
        request.set_start_sequence(start);
        request.set_follow(arguments.follow);
        return connection->jobs()->StreamLogs(context, request);
      },
      {.message = [&](const v1::StreamLogsResponse& message) { Print(invocation, message); },
       .lost = nullptr,
       .restored = nullptr,
       .restarted =
           [&] { invocation.Note("the server lost lines that were shown; from the beginning:"); }});
  MT_RETURN_IF_ERROR(RunDetachable(
      &signals, [&] { return stream.Run(1); }, [&] { stream.Stop(); }));
  return kExitDone;
}

}  // namespace

void AddLogsCommand(CLI::App* app, CommandContext context) {
  const auto arguments = std::make_shared<LogsArguments>();
  CLI::App* const command =
      AddCommand(app, "logs", "What a job says: data reports, warnings, checkpoints", context,
                 [context, arguments] { return Logs(*context.invocation, *arguments); });
  AddJobArgument(command, &arguments->job);
  command->add_flag("-f,--follow", arguments->follow, "go on until the job ends");
}

}  // namespace megatrain::client

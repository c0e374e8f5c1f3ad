// megatrain metrics JOB
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/connection/detachable.h"
#include "client/connection/resumable_stream.h"
#include "client/connection/signal_watch.h"
#include "client/context/job_name.h"
#include "client/output/proto_json.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct MetricsArguments {
  std::string job;
  bool follow = false;
};

// Of fixed widths: rows are printed as they come. 78 columns.
constexpr char kHeading[] =
    "    STEP      LOSS  EVAL LOSS  GRAD NORM  LEARNING RATE   TOKENS/S  SECONDS\n";

std::string Row(const v1::StepMetrics& metrics) {
  const std::string eval = metrics.has_eval_loss() ? FormatLoss(metrics.eval_loss()) : "";
  return absl::StrFormat("%8d  %8s  %9s  %9.3f  %13.3e  %9s  %7.3f\n", metrics.step(),
                         FormatLoss(metrics.loss()), eval, metrics.gradient_norm(),
                         metrics.learning_rate(), FormatRate(metrics.tokens_per_second()),
                         metrics.step_seconds());
}

class Printer {
 public:
  Printer(const Invocation& invocation, bool follow) : invocation_(invocation), follow_(follow) {}

  void Print(const v1::StreamStepMetricsResponse& message) {
    if (message.has_missed()) {
      invocation_.Note(absl::StrCat("records ", message.missed().first_sequence(), " to ",
                                    message.missed().last_sequence(), " are no longer kept"));
    }
    // Of records that are read afterwards each says itself whether it counts.
    if (message.has_fell_back() && follow_) {
      invocation_.Note(absl::StrCat("the job fell back to the checkpoint of step ",
                                    message.fell_back().checkpoint_step(),
                                    "; records of later steps before this no longer count"));
    }
    for (const v1::StepMetricsRecord& record : message.batch().records()) {
      if (invocation_.format() != OutputFormat::kTable) {
        invocation_.PrintRecord(ToJson(record));
      } else if (!record.superseded()) {
        if (!headed_) invocation_.Print(kHeading);
        headed_ = true;
        invocation_.Print(Row(record.metrics()));
      }
    }
  }

 private:
  const Invocation& invocation_;
  const bool follow_;
  bool headed_ = false;
};

absl::StatusOr<ExitCode> Metrics(const Invocation& invocation, const MetricsArguments& arguments) {
  SignalWatch signals({SIGINT, SIGTERM, SIGHUP});
  MT_ASSIGN_OR_RETURN(const std::string name, ParseJobName(arguments.job));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  Printer printer(invocation, arguments.follow);
  using Stream = ResumableStream<v1::StreamStepMetricsResponse>;
  Stream stream(
      connection.get(),
      [&](grpc::ClientContext* context, int64_t start) {
        v1::StreamStepMetricsRequest request;
        request.set_name(name);
        request.set_start_sequence(start);
        request.set_follow(arguments.follow);
        return connection->jobs()->StreamStepMetrics(context, request);
      },
      {.message = [&](const v1::StreamStepMetricsResponse& message) { printer.Print(message); },
       .lost = nullptr,
       .restored = nullptr,
       .restarted =
           [&] {
             invocation.Note("the server lost records that were shown; from the beginning:");
           }});
  MT_RETURN_IF_ERROR(RunDetachable(
      &signals, [&] { return stream.Run(1); }, [&] { stream.Stop(); }));
  return kExitDone;
}

}  // namespace

void AddMetricsCommand(CLI::App* app, CommandContext context) {
  const auto arguments = std::make_shared<MetricsArguments>();
  CLI::App* const command =
      AddCommand(app, "metrics", "Step metrics of a job; -o json: an object a line", context,
                 [context, arguments] { return Metrics(*context.invocation, *arguments); });
  AddJobArgument(command, &arguments->job);
  command->add_flag("-f,--follow", arguments->follow, "go on until the job ends");
}

}  // namespace megatrain::client

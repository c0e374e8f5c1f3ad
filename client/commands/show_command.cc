// megatrain show JOB
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/context/job_name.h"
#include "client/output/proto_json.h"
#include "client/output/proto_time.h"
#include "client/watch/watch_view.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct JobWithEvents {
  v1::Job job;
  std::vector<v1::JobEvent> events;
};

// The job and all its events so far: what WatchJob sends before its first heartbeat.
absl::StatusOr<JobWithEvents> Read(Connection* connection, const std::string& name,
                                   v1::JobView view) {
  const Connection::StreamCall call = connection->NewStream();
  call.context->set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_view(view);
  const auto reader = connection->jobs()->WatchJob(call.context.get(), request);
  JobWithEvents result;
  bool complete = false;
  v1::WatchJobResponse response;
  while (!complete && reader->Read(&response)) {
    if (response.has_job() && result.job.name().empty()) result.job = response.job();
    if (response.has_event()) result.events.push_back(response.event());
    complete = response.has_heartbeat();
  }
  if (complete) call.context->TryCancel();
  const grpc::Status status = reader->Finish();
  if (!complete && !status.ok()) return connection->Explain(status);
  return result;
}

using Lines = std::vector<std::pair<std::string, std::string>>;

Lines Describe(const v1::Job& job, absl::TimeZone zone) {
  const auto time = [zone](const google::protobuf::Timestamp& timestamp) {
    return FormatLocalTime(ToTime(timestamp), zone);
  };
  const v1::JobProgress& progress = job.progress();
  Lines lines = {{"job", job.name()},
                 {"name", job.display_name()},
                 {"user", job.user()},
                 {"state", v1::Job::State_Name(job.state())},
                 {"why", SituationText(job, absl::Now())}};
  if (progress.total_steps() > 0) {
    lines.push_back({"step", absl::StrCat(progress.step(), " of ", progress.total_steps())});
  }
  if (progress.checkpoint_step() > 0) {
    lines.push_back({"checkpoint", absl::StrCat("of step ", progress.checkpoint_step())});
  }
  if (progress.has_last_step()) {
    const v1::StepMetrics& metrics = progress.last_step();
    lines.push_back({"loss", FormatLoss(metrics.loss())});
    lines.push_back({"speed", absl::StrCat(FormatRate(metrics.tokens_per_second()), " tokens/s")});
  }
  lines.push_back({"submitted", time(job.create_time())});
  if (job.has_start_time()) lines.push_back({"started", time(job.start_time())});
  if (job.has_end_time()) lines.push_back({"ended", time(job.end_time())});
  lines.push_back({"attempts", absl::StrCat(job.attempt_count())});
  if (job.priority() != 0) lines.push_back({"priority", absl::StrCat(job.priority())});
  if (!job.allow_change().empty()) {
    lines.push_back({"may change", absl::StrJoin(job.allow_change(), ", ")});
  }
  lines.push_back({"devices", absl::StrJoin(job.devices(), ", ")});
  lines.push_back({"host memory", SizeText(job.pool_bytes())});
  const v1::JobSummary& summary = job.summary();
  lines.push_back({"model", summary.model_path()});
  lines.push_back({"precision", summary.precision()});
  lines.push_back({"batch", absl::StrCat(summary.global_batch(), " sequences of ",
                                         summary.sequence_length(), " tokens")});
  lines.push_back({"checkpoints", summary.checkpoint_directory()});
  lines.push_back({"output", summary.output_directory()});
  return lines;
}

absl::StatusOr<ExitCode> Show(const Invocation& invocation, const std::string& argument) {
  MT_ASSIGN_OR_RETURN(const std::string name, ParseJobName(argument));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  MT_ASSIGN_OR_RETURN(const JobWithEvents read, Read(connection.get(), name, invocation.view()));
  if (invocation.quiet) {
    invocation.Print(read.job.name() + "\n");
    return kExitDone;
  }
  if (invocation.format() != OutputFormat::kTable) {
    nlohmann::ordered_json json = ToJson(read.job);
    nlohmann::ordered_json& events = json["events"] = nlohmann::ordered_json::array();
    for (const v1::JobEvent& event : read.events) events.push_back(ToJson(event));
    invocation.PrintObject(json);
    return kExitDone;
  }
  const Environment& environment = invocation.environment();
  const auto fit = [&](const std::string& line) {
    const int width = invocation.table_width();
    return (width > 0 ? Ellipsize(line, width, environment.charset) : line) + "\n";
  };
  std::string text;
  for (const auto& [label, value] : Describe(read.job, environment.zone)) {
    if (!value.empty()) text += fit(absl::StrCat(PadRight(label, 13), Printable(value)));
  }
  text += "events\n";
  for (const v1::JobEvent& event : read.events) {
    text += fit(absl::StrCat("  ", FormatLocalTime(ToTime(event.time()), environment.zone), "  ",
                             PadRight(v1::Job::State_Name(event.to_state()), 11),
                             Printable(event.text())));
  }
  invocation.Print(text);
  return kExitDone;
}

}  // namespace

void AddShowCommand(CLI::App* app, CommandContext context) {
  const auto job = std::make_shared<std::string>();
  AddJobArgument(AddCommand(app, "show", "What a job is, where it stands, what happened to it",
                            context, [context, job] { return Show(*context.invocation, *job); }),
                 job.get());
}

}  // namespace megatrain::client

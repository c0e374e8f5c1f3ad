// megatrain ls
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/output/proto_json.h"
#include "client/output/proto_time.h"
#include "client/output/table.h"
#include "client/watch/watch_model.h"
#include "client/watch/watch_view.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

constexpr int kPageSize = 500;

struct ListArguments {
  bool all = false;
  std::string states;
};

absl::StatusOr<std::string> Filter(const ListArguments& arguments) {
  std::string filter;
  const auto add = [&filter](const std::string& state) {
    absl::StrAppend(&filter, filter.empty() ? "" : " OR ", "state = ", state);
  };
  if (!arguments.states.empty()) {
    for (const absl::string_view word : absl::StrSplit(arguments.states, ',')) {
      const std::string name = absl::AsciiStrToUpper(absl::StripAsciiWhitespace(word));
      v1::Job::State state;
      if (!v1::Job::State_Parse(name, &state) || state == v1::Job::STATE_UNSPECIFIED) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--state: there is no state ", word,
            "; there are QUEUED, PREPARING, RUNNING, PAUSING, PAUSED, CANCELLING, SUCCEEDED, "
            "FAILED, CANCELLED"));
      }
      add(name);
    }
  } else if (!arguments.all) {
    for (const auto state : {v1::Job::QUEUED, v1::Job::PREPARING, v1::Job::RUNNING,
                             v1::Job::PAUSING, v1::Job::PAUSED, v1::Job::CANCELLING}) {
      add(v1::Job::State_Name(state));
    }
  }
  return filter;
}

absl::StatusOr<std::vector<v1::Job>> ReadPages(Connection* connection, const std::string& filter) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  request.set_filter(filter);
  request.set_page_size(kPageSize);
  do {
    MT_ASSIGN_OR_RETURN(
        v1::ListJobsResponse page,
        connection->Call(connection->jobs(), &v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

std::string StepText(const v1::Job& job) {
  const v1::JobProgress& progress = job.progress();
  if (progress.total_steps() <= 0) return progress.step() > 0 ? absl::StrCat(progress.step()) : "";
  return absl::StrCat(progress.step(), "/", progress.total_steps());
}

std::string TimeText(const v1::Job& job, absl::Time now) {
  if (job.state() == v1::Job::QUEUED) {
    if (!job.queue().has_predicted_start_time()) return "";
    const absl::Duration wait = ToTime(job.queue().predicted_start_time()) - now;
    return absl::StrCat("in ", DurationText(std::max(wait, absl::ZeroDuration())));
  }
  if (job.state() != v1::Job::RUNNING) return "";
  WatchState state;
  state.job = job;
  const std::optional<absl::Duration> left = TimeLeft(state);
  return left.has_value() ? DurationText(*left) : "";
}

std::string LossText(const v1::Job& job) {
  return job.progress().has_last_step() ? FormatLoss(job.progress().last_step().loss()) : "";
}

absl::StatusOr<ExitCode> List(const Invocation& invocation, const ListArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const std::string filter, Filter(arguments));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  MT_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, ReadPages(connection.get(), filter));
  if (invocation.quiet) {
    for (const v1::Job& job : jobs) invocation.Print(job.name() + "\n");
    return kExitDone;
  }
  if (invocation.format() != OutputFormat::kTable) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const v1::Job& job : jobs) list.push_back(ToJson(job));
    invocation.PrintObject(list);
    return kExitDone;
  }
  if (jobs.empty()) {
    invocation.Note(arguments.all || !arguments.states.empty()
                        ? "no jobs"
                        : "no jobs that wait or run; --all shows those that have ended");
    return kExitDone;
  }
  const absl::Time now = absl::Now();
  Table table({{.heading = "JOB"},
               {.heading = "NAME", .width_min = 8},
               {.heading = "STATE"},
               {.heading = "STEP", .right = true, .drop_order = 1},
               {.heading = "LOSS", .right = true, .drop_order = 5},
               {.heading = "ETA", .right = true, .drop_order = 2},
               {.heading = "AGE", .right = true, .drop_order = 4},
               {.heading = "USER", .width_min = 6, .drop_order = 6},
               {.heading = "WHY", .width_min = 12, .drop_order = 3}});
  for (const v1::Job& job : jobs) {
    table.AddRow({job.name(), job.display_name(), v1::Job::State_Name(job.state()), StepText(job),
                  LossText(job), TimeText(job, now), DurationText(now - ToTime(job.create_time())),
                  job.user(), SituationText(job, absl::InfiniteFuture())});
  }
  invocation.Print(table.Render(invocation.table_width(), invocation.environment().charset));
  return kExitDone;
}

}  // namespace

void AddListCommand(CLI::App* app, CommandContext context) {
  const auto arguments = std::make_shared<ListArguments>();
  CLI::App* const command =
      AddCommand(app, "ls", "The jobs that wait or run, the newest first", context,
                 [context, arguments] { return List(*context.invocation, *arguments); });
  command->add_flag("--all,-a", arguments->all, "those that have ended too");
  command->add_option("--state", arguments->states, "only jobs of these states")
      ->type_name("STATE[,STATE]...");
}

}  // namespace megatrain::client

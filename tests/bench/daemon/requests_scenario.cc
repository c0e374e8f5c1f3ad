#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "tests/bench/daemon/call_load.h"
#include "tests/bench/daemon/scenarios.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

using Clock = std::chrono::system_clock;  // as the records' times

constexpr double kCallsPerSecond = 500;
constexpr int kQueuedJobs = 20;  // beside the one that trains: what ListJobs has to list
constexpr int64_t kMiB = int64_t{1} << 20;

struct Window {
  double begin = 0, end = 0;  // seconds since the epoch
};

double Now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Mean seconds of the steps that began and ended in the window; 0 if there are none. Records tell
// when a step ended to the second.
double StepSeconds(const std::vector<v1::StepMetrics>& steps, const Window& window) {
  double seconds = 0;
  int64_t count = 0;
  for (const v1::StepMetrics& step : steps) {
    const auto time = static_cast<double>(step.time().seconds());
    if (time - step.step_seconds() < window.begin || time + 1 > window.end) continue;
    seconds += step.step_seconds();
    ++count;
  }
  return count > 0 ? seconds / static_cast<double>(count) : 0;
}

double OwnProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

absl::StatusOr<double> BesidePool(DaemonProcess* daemon) {
  MT_ASSIGN_OR_RETURN(const v1::Node node, daemon->GetNode());
  return static_cast<double>(daemon->ResidentBytes() - node.host_pool().pinned_bytes()) / kMiB;
}

constexpr int64_t kManySteps = 1'000'000;

// One that trains, and others that wait.
absl::StatusOr<v1::Job> StartTraining(const Workplace& place, const JobShape& shape,
                                      DaemonProcess* daemon) {
  MT_ASSIGN_OR_RETURN(const v1::Job job, daemon->Create(place.Request(shape, "")));
  for (int i = 0; i < kQueuedJobs; ++i) {
    MT_RETURN_IF_ERROR(daemon->Create(place.Request(shape, "")).status());
  }
  MT_RETURN_IF_ERROR(daemon->WaitForStep(job.name(), 4));
  return job;
}

// The daemon's memory, and how many calls it answers.
absl::Status MeasureAnswers(const BenchOptions& options, Report* report) {
  MT_ASSIGN_OR_RETURN(const auto place, Workplace::Make(options.binary, "llama-10m"));
  MT_ASSIGN_OR_RETURN(DaemonProcess::Options daemon_options, place->NewDaemon("answers"));
  daemon_options.threads = 2;
  daemon_options.host_memory = "1GiB";
  MT_ASSIGN_OR_RETURN(const auto daemon, DaemonProcess::Start(daemon_options));
  MT_ASSIGN_OR_RETURN(const double idle_mib, BesidePool(daemon.get()));
  report->AtMost("daemon's memory beside the pool, idle", idle_mib, 200, "MiB");
  const JobShape shape{.steps = kManySteps, .sequence_length = 128, .global_batch = 4};
  MT_ASSIGN_OR_RETURN(const v1::Job job, StartTraining(*place, shape, daemon.get()));
  MT_ASSIGN_OR_RETURN(const double training_mib, BesidePool(daemon.get()));
  report->AtMost("the same, training a 10M model, the cpu device's memory included", training_mib,
                 200, "MiB");

  CallLoadOptions closed;
  closed.seconds = options.round_seconds;
  MT_ASSIGN_OR_RETURN(const CallLoadResult result, RunCallLoad(*daemon, job.name(), closed));
  report->AtLeast("GetJob and ListJobs (21 jobs) by turns, closed loop of 32, while training",
                  static_cast<double>(result.gets + result.lists) / result.seconds, 3000,
                  "requests/s");
  report->AtMost("  GetJob p99", Quantile(result.get_milliseconds, 0.99), 50, "ms");
  report->AtMost("  ListJobs p99", Quantile(result.list_milliseconds, 0.99), 50, "ms");

  // What a call costs by itself.
  MT_ASSIGN_OR_RETURN(const std::vector<v1::Job> all, daemon->List());
  for (const v1::Job& each : all) {
    if (each.name() != job.name()) MT_RETURN_IF_ERROR(daemon->Cancel(each.name()));
  }
  MT_RETURN_IF_ERROR(daemon->Pause(job.name(), false));
  MT_RETURN_IF_ERROR(daemon->WaitForState(job.name(), v1::Job::PAUSED));
  CallLoadOptions open;
  open.calls_per_second = kCallsPerSecond;
  open.seconds = options.round_seconds;
  const double daemon_before = daemon->ProcessorSeconds(), own_before = OwnProcessorSeconds();
  MT_ASSIGN_OR_RETURN(const CallLoadResult idle, RunCallLoad(*daemon, job.name(), open));
  const auto calls = static_cast<double>(idle.gets + idle.lists);
  report->Note(
      "processor time a call at 500 calls/s, of an idle daemon; of its clients",
      absl::StrCat(std::lround(1e6 * (daemon->ProcessorSeconds() - daemon_before) / calls), " us; ",
                   std::lround(1e6 * (OwnProcessorSeconds() - own_before) / calls), " us"));
  MT_ASSIGN_OR_RETURN(const double after_mib, BesidePool(daemon.get()));
  report->AtMost("daemon's memory beside the pool, after these calls", after_mib, 200, "MiB");
  return absl::OkStatus();
}

// What calls cost training. The smaller the model, the shorter its loops, whose threads wait for
// each other: it is a real one.
absl::Status MeasureSlowdown(const BenchOptions& options, Report* report) {
  MT_ASSIGN_OR_RETURN(const auto place, Workplace::Make(options.binary, options.preset));
  MT_ASSIGN_OR_RETURN(DaemonProcess::Options daemon_options, place->NewDaemon("slowdown"));
  daemon_options.threads = 2;
  daemon_options.host_memory = "4GiB";
  MT_ASSIGN_OR_RETURN(const auto daemon, DaemonProcess::Start(daemon_options));
  const JobShape shape{.steps = kManySteps, .sequence_length = 256, .global_batch = 4};
  MT_ASSIGN_OR_RETURN(const v1::Job job, StartTraining(*place, shape, daemon.get()));

  // By turns, so that what else the machine does meets both alike.
  std::vector<Window> quiet, loaded;
  std::vector<double> milliseconds;
  CallLoadOptions open;
  open.calls_per_second = kCallsPerSecond;
  open.seconds = options.round_seconds;
  for (int round = 0; round < options.rounds; ++round) {
    quiet.push_back({Now(), 0});
    std::this_thread::sleep_for(std::chrono::duration<double>(options.round_seconds));
    quiet.back().end = Now();
    loaded.push_back({Now(), 0});
    MT_ASSIGN_OR_RETURN(const CallLoadResult result, RunCallLoad(*daemon, job.name(), open));
    loaded.back().end = Now();
    milliseconds.insert(milliseconds.end(), result.get_milliseconds.begin(),
                        result.get_milliseconds.end());
    milliseconds.insert(milliseconds.end(), result.list_milliseconds.begin(),
                        result.list_milliseconds.end());
  }

  StepSeries series;
  MT_RETURN_IF_ERROR(daemon->ReadSteps(job.name(), shape.steps, false, &series));
  std::vector<double> ratios, quiet_seconds;
  for (size_t i = 0; i < quiet.size(); ++i) {
    const double without = StepSeconds(series.steps, quiet[i]);
    const double with = StepSeconds(series.steps, loaded[i]);
    std::printf("round %zu: a step takes %.1f ms, %.1f ms with calls\n", i + 1, 1e3 * without,
                1e3 * with);
    if (without == 0 || with == 0) return absl::OutOfRangeError("rounds are shorter than steps");
    ratios.push_back(with / without);
    quiet_seconds.push_back(without);
  }
  report->Note(absl::StrCat("step of ", options.preset, " while nobody calls"),
               absl::StrCat(static_cast<int>(1e3 * Quantile(quiet_seconds, 0.5)), " ms"));
  report->AtMost("step time with 500 calls/s over that without, median of rounds",
                 Quantile(ratios, 0.5), 1.20, "");
  report->Note("those 500 calls/s: p50, p99", absl::StrCat(Quantile(milliseconds, 0.5), " ms, ",
                                                           Quantile(milliseconds, 0.99), " ms"));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureRequests(const BenchOptions& options, Report* report) {
  MT_RETURN_IF_ERROR(MeasureAnswers(options, report));
  return MeasureSlowdown(options, report);
}

}  // namespace megatrain

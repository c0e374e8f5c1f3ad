#include <chrono>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "tests/bench/daemon/job_follower.h"
#include "tests/bench/daemon/scenarios.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPairs = 6;  // jobs in a row, of which each but the first starts on a warm pool

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

double ToSeconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + 1e-9 * time.nanos();
}

class Control {
 public:
  Control(const BenchOptions& options, const Workplace* place, DaemonProcess* daemon)
      : options_(options), place_(place), daemon_(daemon), random_(options.seed) {}

  absl::Status PauseAndResume(Report* report);
  absl::Status Cancel(Report* report);
  absl::Status NextJob(Report* report);

 private:
  // To a random moment of a step, and what steps take there.
  absl::StatusOr<double> AwaitSomeMoment(const std::string& job);

  const BenchOptions options_;
  const Workplace* const place_;
  DaemonProcess* const daemon_;
  std::mt19937 random_;
  const JobShape shape_{.steps = 1'000'000, .sequence_length = 256, .global_batch = 4};
};

absl::StatusOr<double> Control::AwaitSomeMoment(const std::string& job) {
  MT_ASSIGN_OR_RETURN(const v1::Job before, daemon_->Get(job));
  MT_RETURN_IF_ERROR(daemon_->WaitForStep(job, before.progress().step() + 4));
  MT_ASSIGN_OR_RETURN(const v1::Job now, daemon_->Get(job));
  const double step = now.progress().step_seconds();
  std::uniform_real_distribution<double> phase(0, step);
  std::this_thread::sleep_for(std::chrono::duration<double>(phase(random_)));
  return step;
}

absl::Status Control::PauseAndResume(Report* report) {
  MT_ASSIGN_OR_RETURN(const v1::Job job, daemon_->Create(place_->Request(shape_, "")));
  JobFollower follower(*daemon_, job.name());
  MT_RETURN_IF_ERROR(follower.Await(v1::Job::RUNNING).status());
  std::vector<double> pauses, steps, resumes;
  for (int i = 0; i < options_.repeats; ++i) {
    MT_ASSIGN_OR_RETURN(const double step, AwaitSomeMoment(job.name()));
    const Clock::time_point asked = Clock::now();
    MT_RETURN_IF_ERROR(daemon_->Pause(job.name(), false));
    MT_ASSIGN_OR_RETURN(const Clock::time_point paused, follower.Await(v1::Job::PAUSED));
    pauses.push_back(Seconds(paused - asked) / step);
    steps.push_back(step);
    const Clock::time_point resumed = Clock::now();
    MT_RETURN_IF_ERROR(daemon_->Resume(job.name()));
    MT_ASSIGN_OR_RETURN(const Clock::time_point running, follower.Await(v1::Job::RUNNING));
    resumes.push_back(Seconds(running - resumed));
  }
  MT_RETURN_IF_ERROR(daemon_->Cancel(job.name()));
  MT_RETURN_IF_ERROR(follower.Await(v1::Job::CANCELLED).status());
  report->Note("step", absl::StrCat(static_cast<int>(1e3 * Quantile(steps, 0.5)), " ms"));
  report->Note(absl::StrCat("pause to PAUSED as a watch sees it, median of ", options_.repeats),
               absl::StrCat(Quantile(pauses, 0.5), " steps"));
  report->AtMost("  the longest", Quantile(pauses, 1), 1, "steps");
  report->Note(
      "resume to RUNNING, median and longest",
      absl::StrCat(1e3 * Quantile(resumes, 0.5), " ms, ", 1e3 * Quantile(resumes, 1), " ms"));
  return absl::OkStatus();
}

absl::Status Control::Cancel(Report* report) {
  std::vector<std::string> names;
  for (int i = 0; i < options_.repeats; ++i) {
    MT_ASSIGN_OR_RETURN(const v1::Job job, daemon_->Create(place_->Request(shape_, "")));
    names.push_back(job.name());
  }
  std::vector<double> cancels;
  for (const std::string& name : names) {
    JobFollower follower(*daemon_, name);
    MT_RETURN_IF_ERROR(follower.Await(v1::Job::RUNNING).status());
    MT_ASSIGN_OR_RETURN(const double step, AwaitSomeMoment(name));
    const Clock::time_point asked = Clock::now();
    MT_RETURN_IF_ERROR(daemon_->Cancel(name));
    MT_ASSIGN_OR_RETURN(const Clock::time_point cancelled, follower.Await(v1::Job::CANCELLED));
    cancels.push_back(Seconds(cancelled - asked) / step);
  }
  report->Note(absl::StrCat("cancel to CANCELLED as a watch sees it, median of ", options_.repeats),
               absl::StrCat(Quantile(cancels, 0.5), " steps"));
  report->AtMost("  the longest", Quantile(cancels, 1), 1, "steps");
  return absl::OkStatus();
}

absl::Status Control::NextJob(Report* report) {
  JobShape shape = shape_;
  shape.steps = 4;
  std::vector<std::string> names;
  for (int i = 0; i < kPairs; ++i) {
    MT_ASSIGN_OR_RETURN(const v1::Job job, daemon_->Create(place_->Request(shape, "")));
    names.push_back(job.name());
  }
  std::vector<double> starts;
  double ended = 0;
  for (const std::string& name : names) {
    MT_RETURN_IF_ERROR(daemon_->WaitForState(name, v1::Job::SUCCEEDED));
    MT_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> events, daemon_->Events(name));
    for (const v1::JobEvent& event : events) {
      // Steps begin with it.
      if (event.to_state() != v1::Job::RUNNING) continue;
      if (ended > 0) starts.push_back(ToSeconds(event.time()) - ended);
      break;
    }
    MT_ASSIGN_OR_RETURN(const v1::Job job, daemon_->Get(name));
    ended = ToSeconds(job.end_time());
  }
  const double reading = place_->ReadModelSeconds();
  report->AtMost("a job's end to the next one's first step, longest, its model read",
                 Quantile(starts, 1), 1, "s");
  report->Note("  median; reading the model's files",
               absl::StrCat(Quantile(starts, 0.5), " s; ", reading, " s"));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureControl(const BenchOptions& options, Report* report) {
  MT_ASSIGN_OR_RETURN(const auto place, Workplace::Make(options.binary, "llama-10m"));
  MT_ASSIGN_OR_RETURN(DaemonProcess::Options daemon_options, place->NewDaemon("control"));
  daemon_options.threads = 2;
  daemon_options.host_memory = "1GiB";
  MT_ASSIGN_OR_RETURN(const auto daemon, DaemonProcess::Start(daemon_options));
  Control control(options, place.get(), daemon.get());
  MT_RETURN_IF_ERROR(control.PauseAndResume(report));
  MT_RETURN_IF_ERROR(control.Cancel(report));
  return control.NextJob(report);
}

}  // namespace megatrain

#include "tests/bench/daemon/kill_run.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSeeds = 3;           // different jobs, by their seed
constexpr size_t kLiveJobsMin = 3;  // queued or running while the killing goes on
// A job fails after five deaths in a row without a step more. That is not what is looked for: after
// so many the next daemon lives until there is one.
constexpr int kIdleDeathsMax = 2;

bool Ended(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

// What its user knows of a job.
struct KnownJob {
  std::string name;
  int seed = 0;
  std::string output;
  StepSeries series;
  std::vector<v1::JobEvent> events;
  v1::Job::State state() const {
    return events.empty() ? v1::Job::STATE_UNSPECIFIED : events.back().to_state();
  }
};

class KillRun {
 public:
  KillRun(const Workplace& place, const KillRunOptions& options)
      : place_(place), options_(options), random_(options.seed) {}

  absl::StatusOr<KillRunResult> Run();

 private:
  double Random(double max) { return std::uniform_real_distribution<double>(0, max)(random_); }
  std::string Output(const std::string& name) const {
    return absl::StrCat(place_.directory(), "/", name);
  }
  absl::Status Start(bool wait);
  // A daemon is started, used and killed.
  absl::Status Life();
  // Submits a job, or repeats the call of which no answer came.
  absl::Status Submit();
  absl::Status Look(KnownJob* job);
  // Everything that was told is still there, and what was told since is learned.
  absl::Status LookAtAll();
  absl::Status AwaitProgress();
  absl::Status Finish();
  absl::Status CheckFinished(const KnownJob& job);

  const Workplace& place_;
  const KillRunOptions options_;
  std::mt19937 random_;
  DaemonProcess::Options daemon_options_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::vector<std::unique_ptr<KnownJob>> jobs_;
  std::optional<v1::CreateJobRequest> unanswered_;
  int submitted_ = 0;
  int idle_deaths_ = 0;
  KillRunResult result_;
};

absl::Status KillRun::Start(bool wait) {
  daemon_ = DaemonProcess::Launch(daemon_options_);
  return wait ? daemon_->WaitUntilReady() : absl::OkStatus();
}

absl::Status KillRun::Submit() {
  if (!unanswered_.has_value()) {
    JobShape shape = options_.shape;
    shape.seed = submitted_ % kSeeds;
    unanswered_ = place_.Request(shape, Output(absl::StrCat("out", submitted_)));
    char id[40];
    std::snprintf(id, sizeof(id), "00000000-0000-4000-8000-%012d", submitted_);
    unanswered_->set_request_id(id);
    ++submitted_;
  }
  MT_ASSIGN_OR_RETURN(const v1::Job job, daemon_->Create(*unanswered_));
  for (const auto& known : jobs_) {
    if (known->name == job.name()) {
      return absl::DataLossError(absl::StrCat(job.name(), " is given to a second request"));
    }
  }
  const int number = submitted_ - 1;
  jobs_.push_back(std::make_unique<KnownJob>());
  jobs_.back()->name = job.name();
  jobs_.back()->seed = number % kSeeds;
  jobs_.back()->output = Output(absl::StrCat("out", number));
  unanswered_.reset();
  return absl::OkStatus();
}

absl::Status KillRun::Look(KnownJob* job) {
  MT_ASSIGN_OR_RETURN(std::vector<v1::JobEvent> events, daemon_->Events(job->name));
  for (size_t i = 0; i < job->events.size(); ++i) {
    if (i >= events.size() || events[i].SerializeAsString() != job->events[i].SerializeAsString()) {
      return absl::DataLossError(absl::StrCat(
          job->name, ": event ", i + 1, " was told as ", job->events[i].ShortDebugString(),
          " and is now ", i < events.size() ? events[i].ShortDebugString() : "gone"));
    }
  }
  job->events = std::move(events);
  if (job->state() == v1::Job::FAILED) {
    return absl::InternalError(absl::StrCat(job->name, " failed: ", job->events.back().text()));
  }
  return daemon_->ReadSteps(job->name, options_.shape.steps + 1, false, &job->series);
}

absl::Status KillRun::LookAtAll() {
  if (unanswered_.has_value()) MT_RETURN_IF_ERROR(Submit());
  MT_ASSIGN_OR_RETURN(const std::vector<v1::Job> listed, daemon_->List());
  if (listed.size() != jobs_.size()) {
    return absl::DataLossError(
        absl::StrCat(listed.size(), " jobs are listed, ", jobs_.size(), " were submitted"));
  }
  for (const auto& job : jobs_) {
    if (std::none_of(listed.begin(), listed.end(),
                     [&](const v1::Job& each) { return each.name() == job->name; })) {
      return absl::DataLossError(job->name + " is lost");
    }
    MT_RETURN_IF_ERROR(Look(job.get()));
  }
  return absl::OkStatus();
}

absl::Status KillRun::AwaitProgress() {
  absl::Status status;
  MT_RETURN_IF_ERROR(daemon_->WaitFor([&] {
    for (const auto& job : jobs_) {
      if (Ended(job->state())) continue;
      const int64_t before = job->series.furthest;
      status = Look(job.get());
      if (!status.ok() || job->series.furthest > before || Ended(job->state())) return true;
    }
    return false;
  }));
  return status;
}

absl::Status KillRun::Life() {
  // Some die before they are up.
  const bool early = Random(1) < 0.2 && idle_deaths_ < kIdleDeathsMax;
  MT_RETURN_IF_ERROR(Start(!early));
  int64_t furthest_before = 0, furthest_after = 0;
  for (const auto& job : jobs_) furthest_before += job->series.furthest;
  size_t live = 0;
  if (!early) {
    MT_RETURN_IF_ERROR(LookAtAll());
    for (const auto& job : jobs_) {
      live += !Ended(job->state());
      if (job->state() == v1::Job::PAUSED) MT_RETURN_IF_ERROR(daemon_->Resume(job->name));
    }
    for (; live < kLiveJobsMin; ++live) MT_RETURN_IF_ERROR(Submit());
    if (idle_deaths_ >= kIdleDeathsMax) MT_RETURN_IF_ERROR(AwaitProgress());
  }

  const double life = Random(early ? 0.3 : options_.life_seconds);
  const auto death = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(life));
  std::thread killer([death, pid = daemon_->process().pid()] {
    std::this_thread::sleep_until(death);
    kill(pid, SIGKILL);
  });
  // From here on calls fail when the daemon dies; what they told until then counts.
  absl::Status lost;
  if (!early) {
    const double act = Random(1);
    bool acted = false;
    while (Clock::now() < death && lost.ok()) {
      for (const auto& job : jobs_) {
        if (Ended(job->state())) continue;
        if (const absl::Status status = Look(job.get()); absl::IsDataLoss(status)) lost = status;
        if (act < 0.2 && !acted && job->state() == v1::Job::RUNNING && life > 0.3) {
          acted = daemon_->Pause(job->name, act < 0.1).ok();
        }
      }
      if (act > 0.7 && !acted) {
        // So that some die with the call under way.
        std::this_thread::sleep_until(
            death - std::chrono::microseconds(static_cast<int64_t>(Random(15'000))));
        if (const absl::Status status = Submit(); absl::IsDataLoss(status)) lost = status;
        acted = true;
      }
    }
  }
  killer.join();
  daemon_->process().Wait();
  result_.kills_before_ready += early;
  for (const auto& job : jobs_) furthest_after += job->series.furthest;
  idle_deaths_ = furthest_after > furthest_before ? 0 : idle_deaths_ + 1;
  return lost;
}

absl::Status KillRun::CheckFinished(const KnownJob& job) {
  std::vector<int64_t> all;
  for (int64_t step = 1; step <= options_.shape.steps; ++step) all.push_back(step);
  if (job.series.Numbers() != all) {
    return absl::DataLossError(absl::StrCat(job.name, ": who followed it has ",
                                            job.series.steps.size(), " steps, or out of order"));
  }
  StepSeries late;
  MT_RETURN_IF_ERROR(daemon_->ReadSteps(job.name, options_.shape.steps + 1, false, &late));
  if (late.Numbers() != all) {
    return absl::DataLossError(absl::StrCat(job.name, ": who reads it afterwards has ",
                                            late.steps.size(), " steps, or out of order"));
  }
  if (DirectoryContents(job.output) != DirectoryContents(Output(absl::StrCat("x", job.seed)))) {
    return absl::DataLossError(absl::StrCat(job.name, ": its weights differ"));
  }
  result_.records += late.next - 1;
  result_.events += static_cast<int64_t>(job.events.size());
  for (const v1::JobEvent& event : job.events) {
    if (event.reason() == v1::Job::PROCESS_RESTART) {
      ++result_.killed[v1::Job::State_Name(event.from_state())];
    }
  }
  return absl::OkStatus();
}

absl::Status KillRun::Finish() {
  MT_RETURN_IF_ERROR(Start(true));
  MT_RETURN_IF_ERROR(LookAtAll());
  for (const auto& job : jobs_) {
    if (job->state() == v1::Job::PAUSED) MT_RETURN_IF_ERROR(daemon_->Resume(job->name));
  }
  for (const auto& job : jobs_) {
    MT_RETURN_IF_ERROR(daemon_->WaitForState(job->name, v1::Job::SUCCEEDED));
  }
  MT_RETURN_IF_ERROR(LookAtAll());
  for (const auto& job : jobs_) MT_RETURN_IF_ERROR(CheckFinished(*job));
  result_.jobs = static_cast<int>(jobs_.size());
  return absl::OkStatus();
}

absl::StatusOr<KillRunResult> KillRun::Run() {
  for (int seed = 0; seed < kSeeds; ++seed) {
    JobShape shape = options_.shape;
    shape.seed = seed;
    MT_RETURN_IF_ERROR(place_.RunUndisturbed(shape, Output(absl::StrCat("x", seed))));
  }
  MT_ASSIGN_OR_RETURN(daemon_options_, place_.NewDaemon("kills"));
  for (int i = 0; i < options_.kills; ++i) {
    if (const absl::Status status = Life(); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("in life ", i + 1, ": ", status.message()));
    }
    if ((i + 1) % 10 == 0) {
      const auto finished = std::count_if(jobs_.begin(), jobs_.end(),
                                          [](const auto& job) { return Ended(job->state()); });
      std::printf("%d kills, %zu jobs, %d finished\n", i + 1, jobs_.size(),
                  static_cast<int>(finished));
      std::fflush(stdout);
    }
  }
  MT_RETURN_IF_ERROR(Finish());
  return std::move(result_);
}

}  // namespace

absl::StatusOr<KillRunResult> RunKills(const Workplace& place, const KillRunOptions& options) {
  return KillRun(place, options).Run();
}

}  // namespace megatrain

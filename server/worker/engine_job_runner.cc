#include "server/worker/engine_job_runner.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"
#include "engine/device/device_lost.h"
#include "server/worker/job_records.h"

namespace megatrain {
namespace {

// What must be free before a run that could not write its records goes on: minutes of them.
constexpr int64_t kRecordsRoomBytes = int64_t{64} << 20;

RunEnd::Kind KindOf(TrainingOutcome outcome) {
  switch (outcome) {
    case TrainingOutcome::kFinished:
    case TrainingOutcome::kStoppedEarly:
      return RunEnd::Kind::kFinished;
    case TrainingOutcome::kInterrupted:
      return RunEnd::Kind::kStopped;
    case TrainingOutcome::kReleased:
      return RunEnd::Kind::kReleased;
    case TrainingOutcome::kCancelled:
      return RunEnd::Kind::kCancelled;
  }
  return RunEnd::Kind::kFailed;
}

// Keeps what of an event is to be read later. `step`: the last one that is done.
absl::Status Record(const RunEvent& event, int64_t step, JobRecords& records) {
  return std::visit(
      Overloaded{[&](const RunMessage& message) { return records.AddLine(step, message.line); },
                 [&](const StepsBegin&) { return records.FallBack(step); },
                 [&](const StepRecord& record) { return records.AddStep(record); },
                 [&](const BeforeCheckpoint&) { return records.Sync(); },
                 [](const auto&) { return absl::OkStatus(); }},
      event);
}

}  // namespace

struct EngineJobRunner::Run {
  Run(RunRequest request_, const EngineJobRunnerOptions& options)
      : request(std::move(request_)),
        watchdog(options.watchdog, [this, stalled = options.stalled](const std::string& why) {
          if (stalled) stalled(request.job_id, why);
        }) {}

  const RunRequest request;
  TrainingControl control;
  Watchdog watchdog;
  int64_t step = 0;  // the training thread's: the last one seen

  // Guarded by the runner's mutex.
  bool wanted_running = true;  // as last asked for
  bool parked = false;         // paused in place: not active
  absl::Status records_full;   // why it pauses by itself
  bool ended = false;          // nothing is asked of it any more
  bool exited = false;         // its thread has nothing left to do

  std::thread thread;
};

EngineJobRunner::EngineJobRunner(EngineHost* host, EngineJobRunnerOptions options)
    : host_(host), options_(std::move(options)) {}

EngineJobRunner::~EngineJobRunner() {
  std::vector<std::unique_ptr<Run>> runs;
  {
    MutexLock lock(&mutex_);
    closing_ = true;
    for (const std::unique_ptr<Run>& run : runs_) run->control.Cancel();
    runs.swap(runs_);
  }
  for (const std::unique_ptr<Run>& run : runs) run->thread.join();
}

absl::StatusOr<EngineJobRunner::Run*> EngineJobRunner::Find(const std::string& job_id) const {
  for (const std::unique_ptr<Run>& run : runs_) {
    if (!run->ended && run->request.job_id == job_id) return run.get();
  }
  return absl::NotFoundError(absl::StrCat("job ", job_id, " does not run"));
}

absl::Status EngineJobRunner::CheckFree(const std::vector<int>& devices) const {
  for (const std::unique_ptr<Run>& run : runs_) {
    const std::vector<int>& its = run->request.devices;
    const bool here =
        std::find_first_of(its.begin(), its.end(), devices.begin(), devices.end()) != its.end();
    if (here && !run->ended && !run->parked) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", run->request.job_id, " is running"));
    }
  }
  return absl::OkStatus();
}

absl::Status EngineJobRunner::Start(RunRequest request) {
  std::vector<std::unique_ptr<Run>> exited;  // destroyed without the lock
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < runs_.size();) {
    if (!runs_[i]->exited) {
      ++i;
      continue;
    }
    runs_[i]->thread.join();
    exited.push_back(std::move(runs_[i]));
    runs_.erase(runs_.begin() + static_cast<int64_t>(i));
  }
  if (closing_) return absl::FailedPreconditionError("the engine is ending");
  if (Find(request.job_id).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("job ", request.job_id, " runs already"));
  }
  MT_RETURN_IF_ERROR(CheckFree(request.devices));
  runs_.push_back(std::make_unique<Run>(std::move(request), options_));
  Run& run = *runs_.back();
  run.thread = std::thread([this, &run] { RunJob(run); });
  return absl::OkStatus();
}

absl::Status EngineJobRunner::Ask(const std::string& job_id, RunWish wish) {
  MutexLock lock(&mutex_);
  MT_ASSIGN_OR_RETURN(Run* const run, Find(job_id));
  switch (wish) {
    case RunWish::kPause:
      run->wanted_running = false;
      run->control.Pause();
      break;
    case RunWish::kRelease:
      run->wanted_running = false;
      run->control.Release();
      break;
    case RunWish::kResume:
      if (run->parked) MT_RETURN_IF_ERROR(CheckFree(run->request.devices));
      run->wanted_running = true;
      run->parked = false;
      run->records_full = absl::OkStatus();
      run->control.Resume();
      break;
    case RunWish::kCancel:
      run->control.Cancel();
      break;
    case RunWish::kCheckpoint:
      run->control.Checkpoint();
      run->control.Wake();
      break;
    case RunWish::kStop:
      run->control.Stop();
      run->control.Wake();
      break;
  }
  return absl::OkStatus();
}

void EngineJobRunner::Tell(const Run& run, const JobRunEvent& event) const {
  for (RunObserver* const observer : options_.observers) observer->Tell(run.request, event);
}

// A full disk: the job stands still until there is room, rather than make steps whose records are
// lost. Other failures do not stop it.
void EngineJobRunner::NoteRecords(Run& run, const absl::Status& status) {
  if (status.ok()) return;
  if (IsDiskFull(status)) {
    MutexLock lock(&mutex_);
    if (!run.wanted_running) return;  // it pauses already
    run.wanted_running = false;
    run.records_full = status;
    run.control.Pause();
  }
  Tell(run, RunMessage{
                absl::StrCat("this job's metrics and log cannot be written: ", status.message())});
}

TrainingPause EngineJobRunner::Park(Run& run, const TrainingPause& pause) {
  MutexLock lock(&mutex_);
  if (!pause.status.ok()) run.wanted_running = false;
  // Resumed already: it goes on, and nobody may take its place.
  run.parked = !run.wanted_running;
  const absl::Status records_full = std::exchange(run.records_full, absl::OkStatus());
  if (!pause.status.ok() || records_full.ok()) return pause;
  return {records_full, run.request.records->directory(), kRecordsRoomBytes};
}

void EngineJobRunner::Follow(Run& run, const RunEvent& event) {
  run.watchdog.Follow(event);
  std::visit(
      Overloaded{[&run](const StepsBegin& begin) { run.step = begin.first_step - 1; },
                 [&run](const StepRecord& record) { run.step = record.step; }, [](const auto&) {}},
      event);
  if (run.request.records != nullptr) {
    NoteRecords(run, Record(event, run.step, *run.request.records));
  }
  const auto tell = [this, &run](const auto& told) { Tell(run, told); };
  std::visit(Overloaded{tell, [&](const TrainingPause& pause) { tell(Park(run, pause)); }}, event);
}

absl::StatusOr<TrainingOutcome> EngineJobRunner::TrainOnFiles(Run& run, FileSystem* files) {
  TrainingOptions options;
  options.pause_on_full_disk = true;
  options.allow_change = run.request.allow_change;
  options.devices = run.request.devices;
  options.files = files;
  options.alive = [&run] { run.watchdog.Alive(); };
  return RunTraining(*host_, run.request.spec, options, &run.control,
                     [this, &run](const RunEvent& event) { Follow(run, event); });
}

RunEnd EngineJobRunner::Train(Run& run) {
  absl::StatusOr<TrainingOutcome> outcome = absl::InternalError("");
  bool not_started = false;
  try {
    const auto files = options_.files(run.request.uid, run.request.job_id);  // of the submitter
    not_started = absl::IsUnavailable(files.status());
    if (files.ok()) {
      outcome = TrainOnFiles(run, files->get());
    } else {
      outcome = files.status();
    }
  } catch (const std::exception& error) {  // out of memory, a library's own
    outcome = absl::InternalError(absl::StrCat("the engine failed: ", error.what()));
  }
  RunEnd end;
  if (outcome.ok()) {
    end.kind = KindOf(*outcome);
    if (*outcome == TrainingOutcome::kStoppedEarly) {
      end.early_reason = absl::StrCat(
          "stopped by training.stop_after_worse: ", run.request.spec.training.stop_after_worse,
          " evaluations in a row without a lower eval_loss");
    }
    return end;
  }
  end.status = outcome.status();
  // What failed while the process ends is found again, or not, when the job is started again.
  end.kind = IsDeviceLost(end.status)       ? RunEnd::Kind::kLost
             : run.control.stop_requested() ? RunEnd::Kind::kStopped
             : not_started                  ? RunEnd::Kind::kNotStarted
                                            : RunEnd::Kind::kFailed;
  return end;
}

void EngineJobRunner::RunJob(Run& run) {
  NameThisThread("trainer");
  const RunEnd end = Train(run);
  run.watchdog.Enter(TrainingPhase::kPaused);
  if (!end.status.ok()) Follow(run, RunMessage{std::string(end.status.message())});
  if (IsDeviceLost(end.status) && options_.device_lost) {
    options_.device_lost(run.request.job_id, std::string(end.status.message()));
  }
  {
    MutexLock lock(&mutex_);
    run.ended = true;
  }
  Tell(run, end);
  MutexLock lock(&mutex_);
  run.exited = true;
}

}  // namespace megatrain

#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"
#include "server/manager/submission.h"

namespace megatrain {
namespace {

// Between rounds: without news, after a write that failed, and when there are only new steps to
// show.
constexpr double kIdleSeconds = 10;
constexpr double kRetrySeconds = 1;
constexpr double kStepsSeconds = 0.05;
constexpr absl::Duration kStartWait = absl::Seconds(10);

}  // namespace

Scheduler::Scheduler(JobLedger* ledger, JobRunner* runner, RunMailbox* mailbox,
                     JobRecordsDirectory* records, Options options)
    : ledger_(ledger),
      runner_(runner),
      mailbox_(mailbox),
      records_(records),
      options_(std::move(options)),
      limits_(options_.limits),
      disk_waits_(options_.free_disk_bytes) {
  for (const JobPtr& job : ledger_->table().All()) {
    usage_.AddEvents(job->uid, ledger_->table().Events(job->id, 1, SIZE_MAX));
    if (!IsEnded(job->state)) unclosed_.insert(job->id);
    last_number_ = job->number;
  }
  ledger_->AddListener(this, [mailbox] { mailbox->Wake(); });
}

Scheduler::~Scheduler() {
  Shutdown();
  ledger_->RemoveListener(this);
}

void Scheduler::Start() { thread_ = std::thread(&Scheduler::Loop, this); }

void Scheduler::Shutdown() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  mailbox_->Wake();
  thread_.join();
}

void Scheduler::Loop() {
  NameThisThread("scheduler");
  for (;;) {
    const bool stopping = stopping_;
    RunRound();
    if (stopping && runs_.empty()) return;
    mailbox_->Wait(SecondsToNextRound(), kStepsSeconds);
  }
}

double Scheduler::SecondsToNextRound() const {
  if (store_failed_) return kRetrySeconds;
  double seconds = kIdleSeconds;
  if (const std::optional<absl::Time> look = disk_waits_.NextLook()) {
    seconds = std::min(seconds, absl::ToDoubleSeconds(*look - ledger_->Now()));
  }
  return std::max(seconds, kRetrySeconds);
}

void Scheduler::RunRound() {
  store_failed_ = false;
  TakeMail();
  MeterUse();
  std::vector<std::string> ids;
  for (const auto& [id, run] : runs_) ids.push_back(id);
  SettleDiskLimit();
  for (const std::string& id : ids) SettleRun(id);
  SettleJobsWithoutRun();
  SettleDiskWaits();
  StartJobs();
  CloseRecordsOfEnded();
  if (!store_failed_) last_note_.clear();
}

void Scheduler::TakeMail() {
  RunMailbox::Mail mail = mailbox_->Take();
  for (const RunMailbox::Report& report : mail.reports) {
    const auto run = runs_.find(report.job_id);
    if (run == runs_.end()) continue;
    const int64_t checkpoint_step = run->second.facts.checkpoint_step;
    Apply(report.event, &run->second.facts);
    // When it has read its data, and written a checkpoint.
    if (run->second.facts.steps_told || run->second.facts.checkpoint_step != checkpoint_step) {
      MeasureDisk(report.job_id);
    }
  }
  for (const auto& [id, progress] : mail.progress) {
    const auto run = runs_.find(id);
    if (run == runs_.end()) continue;
    Apply(progress.record, &run->second.facts);
    ledger_->SetProgress(id, progress.record, progress.step_seconds);
  }
}

// ---- Runs ----

void Scheduler::SettleRun(const std::string& id) {
  const auto run = runs_.find(id);
  while (run != runs_.end() && SettleOnce(id, &run->second)) {
    if (runs_.find(id) == runs_.end()) return;
  }
}

bool Scheduler::SettleOnce(const std::string& id, Run* run) {
  // Decided under the ledger's lock, so that no user's change comes in between.
  RunAction action;
  const absl::StatusOr<JobPtr> job =
      ledger_->Change(id, [&](const Job& job) -> absl::StatusOr<std::optional<JobChange>> {
        action = DecideRun(job, run->facts, stopping_);
        if (action.kind != RunAction::Kind::kChange) return std::nullopt;
        return action.change;
      });
  if (!job.ok() && ledger_->table().Find(id) == nullptr) return LetGoOfDeleted(id, run);
  if (!job.ok()) {
    Note(absl::StrCat("job ", id, ": its state cannot be stored"), job.status());
    // Nobody waits for a daemon that ends: what the store does not say is as after its death.
    if (stopping_ && run->facts.phase == RunFacts::Phase::kEnded) runs_.erase(id);
    return false;
  }
  switch (action.kind) {
    case RunAction::Kind::kNone:
      return false;
    case RunAction::Kind::kChange:
      NoteChanged((*job)->state, &run->facts);
      if ((*job)->state == JobState::kPaused && (*job)->reason == JobReason::kDiskFull) {
        const TrainingPause& pause = run->facts.pause;
        disk_waits_.Add(**job,
                        pause.directory.empty()
                            ? DiskNeedsOf(**job)
                            : std::vector<DiskNeed>{{pause.directory, pause.disk_bytes}},
                        ledger_->Now());
      }
      return true;
    case RunAction::Kind::kForget:
      ForgetRun(id, **job);
      return true;
    default:
      break;
  }
  const absl::Status asked = AskRunner(action.kind, id);
  // NotFound: the run's end is on its way and answers everything.
  if (!asked.ok() && !absl::IsNotFound(asked)) {
    Note(absl::StrCat("job ", id), asked);
    store_failed_ = true;  // as good as: asked again in a moment
    return false;
  }
  NoteAsked(action.kind, &run->facts);
  return true;
}

bool Scheduler::LetGoOfDeleted(const std::string& id, Run* run) {
  if (run->facts.phase == RunFacts::Phase::kEnded) {
    ++runs_ended_;
    runs_.erase(id);
    return true;
  }
  if (run->facts.cancel_asked) return false;
  // NotFound: its end is on its way.
  runner_->Cancel(id).IgnoreError();
  run->facts.cancel_asked = true;
  return false;
}

absl::Status Scheduler::AskRunner(RunAction::Kind kind, const std::string& id) {
  switch (kind) {
    case RunAction::Kind::kPause:
      return runner_->Pause(id, /*release_host=*/false);
    case RunAction::Kind::kRelease:
      return runner_->Pause(id, /*release_host=*/true);
    case RunAction::Kind::kResume:
      return runner_->Resume(id);
    case RunAction::Kind::kCancel:
      return runner_->Cancel(id);
    case RunAction::Kind::kStop:
      return runner_->Stop(id);
    default:
      return absl::OkStatus();
  }
}

void Scheduler::ForgetRun(const std::string& id, const Job& job) {
  const RunEnd& end = runs_.at(id).facts.end;
  if (job.state == JobState::kQueued && end.kind == RunEnd::Kind::kFailed) {
    if (FailureOf(end.status) == RunFailure::kDiskFull) {
      disk_waits_.Add(job, DiskNeedsOf(job), ledger_->Now());
    } else {
      // While others hold memory, waiting for a while does not help.
      const bool alone = runs_.size() == 1;
      start_waits_[id] = {alone ? ledger_->Now() + kStartWait : absl::InfiniteFuture(),
                          runs_ended_ + 1, WaitingReason::kHostMemory,
                          std::string(end.status.message())};
    }
  }
  MeasureDisk(id);
  ++runs_ended_;
  runs_.erase(id);
}

void Scheduler::SettleJobsWithoutRun() {
  for (const JobPtr& job : ledger_->table().Live()) {
    if (!IsActive(job->state) || runs_.find(job->id) != runs_.end()) continue;
    const absl::Status status =
        ledger_
            ->Change(job->id,
                     [](const Job& job) -> absl::StatusOr<std::optional<JobChange>> {
                       RunAction action = DecideWithoutRun(job);
                       if (action.kind != RunAction::Kind::kChange) return std::nullopt;
                       return std::move(action.change);
                     })
            .status();
    if (!status.ok()) Note(absl::StrCat("job ", job->id, ": its state cannot be stored"), status);
  }
}

void Scheduler::MeterUse() {
  const absl::Time now = ledger_->Now();
  for (auto& [id, run] : runs_) {
    const bool has_device = run.facts.Occupies();
    if (run.has_device) {
      if (const JobPtr job = ledger_->table().Find(id)) usage_.Add(job->uid, run.since, now);
    }
    run.since = now;
    run.has_device = has_device;
  }
}

void Scheduler::CloseRecordsOfEnded() {
  // Also of those that came and went since the last round.
  for (const JobPtr& job : ledger_->table().Range(last_number_, /*descending=*/false, SIZE_MAX,
                                                  [](const Job&) { return true; })) {
    unclosed_.insert(job->id);
    last_number_ = job->number;
  }
  for (auto id = unclosed_.begin(); id != unclosed_.end();) {
    const JobPtr job = ledger_->table().Find(*id);
    if (runs_.count(*id) == 1 || (job != nullptr && !IsEnded(job->state))) {
      ++id;
      continue;
    }
    disk_waits_.Forget(*id);
    start_waits_.erase(*id);
    predicted_step_seconds_.erase(*id);
    if (records_ != nullptr && job != nullptr) {
      const absl::StatusOr<std::shared_ptr<JobRecords>> records = records_->Open(*id);
      if (records.ok()) (*records)->Close();
    }
    id = unclosed_.erase(id);
  }
}

// ---- The queue ----

std::optional<double> Scheduler::SecondsLeft(const Job& job) {
  double step_seconds = job.step_seconds;
  if (step_seconds == 0 && job.spec != nullptr && options_.predict_step_seconds) {
    const auto [predicted, is_new] = predicted_step_seconds_.try_emplace(job.id, 0);
    if (is_new) predicted->second = options_.predict_step_seconds(job);
    step_seconds = predicted->second;
  }
  // Of epochs the steps are known when the data was read.
  const int64_t steps = job.total_steps > 0   ? job.total_steps
                        : job.spec != nullptr ? job.spec->training.steps
                                              : 0;
  if (steps == 0 || step_seconds == 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(steps - job.step, 0)) * step_seconds;
}

QueuedJob Scheduler::Describe(const Job& job) {
  QueuedJob queued;
  queued.id = job.id;
  queued.number = job.number;
  queued.uid = job.uid;
  queued.priority = job.priority;
  queued.seconds = SecondsLeft(job);
  const auto run = runs_.find(job.id);
  if (run == runs_.end()) {
    queued.pool_bytes = job.pool_bytes;
  } else if (run->second.facts.Occupies()) {
    queued.hold = WaitingReason::kHostMemory;
    queued.hold_text = "its host memory is being saved";
    return queued;
  }
  const absl::Time now = ledger_->Now();
  if (disk_waits_.Waits(job.id)) {
    if (disk_waits_.HasRoom(job, now)) {
      disk_waits_.Remove(job.id);
    } else {
      queued.hold = WaitingReason::kDiskFull;
      queued.hold_text = disk_waits_.Text(job.id);
    }
  }
  if (options_.disk != nullptr && queued.hold == WaitingReason::kNone) {
    queued.hold_text = options_.disk->OverLimit(job);
    if (!queued.hold_text.empty()) queued.hold = WaitingReason::kUserLimit;
  }
  const auto wait = start_waits_.find(job.id);
  if (wait != start_waits_.end()) {
    if (wait->second.until <= now || wait->second.runs_ended != runs_ended_) {
      start_waits_.erase(wait);
    } else {
      queued.hold = wait->second.reason;
      queued.hold_text = wait->second.text;
    }
  }
  return queued;
}

QueueSnapshot Scheduler::TakeSnapshot() {
  QueueSnapshot snapshot;
  snapshot.now = ledger_->Now();
  snapshot.accepts = !stopping_;
  snapshot.pool_bytes = options_.pool_bytes;
  {
    MutexLock lock(&limits_mutex_);
    snapshot.limits = limits_;
  }
  snapshot.use_seconds = usage_.Seconds(snapshot.now);
  for (const JobPtr& job : ledger_->table().Live()) {
    const auto run = runs_.find(job->id);
    if (IsActive(job->state) || (run != runs_.end() && run->second.facts.Occupies())) {
      snapshot.active.push_back({job->uid, job->pool_bytes, SecondsLeft(*job)});
    } else if (run != runs_.end()) {
      snapshot.pool_paused_bytes[job->uid] += job->pool_bytes;
    }
    if (job->state == JobState::kQueued) snapshot.queued.push_back(Describe(*job));
  }
  // Of jobs that have ended, until the runner has let them go.
  for (const auto& [id, run] : runs_) {
    const JobPtr job = ledger_->table().Find(id);
    if (job == nullptr) snapshot.active.push_back({-1, 0, 0.0});
    if (job != nullptr && IsEnded(job->state)) {
      snapshot.active.push_back({job->uid, job->pool_bytes, 0.0});
    }
  }
  return snapshot;
}

void Scheduler::StartJobs() {
  // Again after each start: one that fails leaves the device to the next.
  for (;;) {
    const QueueDecision decision = DecideQueue(TakeSnapshot());
    if (decision.start.empty() || !StartJob(decision.start.front())) {
      ledger_->SetQueuePlaces(decision.places);
      return;
    }
  }
}

bool Scheduler::StartJob(const std::string& id) {
  const JobPtr job = ledger_->table().Find(id);
  if (job == nullptr) return true;      // cancelled and deleted since
  if (runs_.find(id) != runs_.end()) {  // in place
    const absl::StatusOr<JobPtr> changed =
        Change(id, JobState::kQueued, {JobState::kPreparing, JobReason::kNone, "goes on", {}});
    if (changed.ok()) SettleRun(id);
    return changed.ok();
  }
  if (job->spec == nullptr) {
    const absl::Status parsed = ParseJob(*job->file, ledger_->state_directory(), id).status();
    return Change(id, JobState::kQueued,
                  {JobState::kFailed, JobReason::kInvalidInput, std::string(parsed.message()), {}})
        .ok();
  }
  Run run;
  run.since = ledger_->Now();
  if (records_ != nullptr) {
    absl::StatusOr<std::shared_ptr<JobRecords>> records = records_->Open(id);
    if (!records.ok()) {
      Note(absl::StrCat("job ", id, ": its records cannot be opened"), records.status());
      start_waits_[id] = {
          run.since + kStartWait, runs_ended_, WaitingReason::kDiskFull,
          absl::StrCat("its records cannot be written: ", records.status().message())};
      return true;  // another may start
    }
    run.records = *std::move(records);
  }
  const absl::StatusOr<JobPtr> changed =
      Change(id, JobState::kQueued,
             {JobState::kPreparing, JobReason::kNone, absl::StrCat("attempt ", job->attempts + 1),
              [](Job* edited) { ++edited->attempts; }});
  if (!changed.ok()) return false;
  RunRequest request{id, *job->spec, run.records, job->uid, (*changed)->allow_change};
  runs_[id] = std::move(run);
  const absl::Status started = runner_->Start(std::move(request));
  if (!started.ok()) {
    Note(absl::StrCat("job ", id, " cannot be started"), started);
    // As one for which there was no room: it is tried again.
    Apply(RunEnd{RunEnd::Kind::kFailed, absl::UnavailableError(started.message())},
          &runs_.at(id).facts);
    SettleRun(id);
  }
  return true;
}

absl::StatusOr<JobPtr> Scheduler::Change(const std::string& id, JobState from, JobChange change) {
  bool made = false;
  absl::StatusOr<JobPtr> job =
      ledger_->Change(id, [&](const Job& job) -> absl::StatusOr<std::optional<JobChange>> {
        if (job.state != from) return std::nullopt;
        made = true;
        return std::move(change);
      });
  if (!job.ok()) {
    Note(absl::StrCat("job ", id, ": its state cannot be stored"), job.status());
    return job;
  }
  if (!made) return absl::AbortedError("a user was faster");
  return job;
}

void Scheduler::Note(const std::string& what, const absl::Status& status) {
  store_failed_ = true;
  const std::string note = absl::StrCat(what, ": ", status.message());
  if (note == last_note_) return;
  last_note_ = note;
  if (options_.log) options_.log(note);
}

}  // namespace megatrain

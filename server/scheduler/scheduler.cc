#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"
#include "engine/memory/pool_busy.h"

namespace megatrain {
namespace {

// Between rounds: without news, after a write that failed, and when there are only new steps to
// show.
constexpr double kIdleSeconds = 10;
constexpr double kRetrySeconds = 1;
constexpr double kStepsSeconds = 0.05;

// Returns what a run that a full disk has paused needs. `records` may be null.
std::vector<DiskNeed> NeedsOf(const TrainingPause& pause, const JobRecords* records,
                              const Job& job) {
  if (pause.directory.empty()) return DiskNeedsOf(job);
  // Records are themselves what the margin is for.
  const bool for_records = records != nullptr && pause.directory == records->directory();
  return {{pause.directory, pause.disk_bytes + (for_records ? 0 : kDiskMarginBytes)}};
}

}  // namespace

Scheduler::Scheduler(JobLedger* ledger, JobRunner* runner, RunMailbox* mailbox,
                     JobRecordsDirectory* records, Options options)
    : ledger_(ledger),
      runner_(runner),
      mailbox_(mailbox),
      records_(records),
      options_(std::move(options)),
      disk_waits_(options_.free_disk_bytes) {
  for (const JobPtr& job : ledger_->table().All()) {
    usage_.AddEvents(job->uid, static_cast<size_t>(ClaimOf(*job).value_or(DeviceClaim()).count),
                     ledger_->table().Events(job->id, 1, SIZE_MAX), ledger_->Now());
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

void Scheduler::BeginShutdown() {
  stopping_ = true;
  mailbox_->Wake();
}

void Scheduler::Shutdown() {
  if (!thread_.joinable()) return;
  BeginShutdown();
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
    if (run->second.facts.steps_unstored || run->second.facts.checkpoint_step != checkpoint_step) {
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
    if (!stopping_) return false;
    // Nobody waits for a daemon that ends: what the store does not say is as after its death. A run
    // that goes on saves and ends all the same.
    if (run->facts.phase == RunFacts::Phase::kEnded) {
      runs_.erase(id);
    } else if (!run->facts.stop_asked && !run->facts.cancel_asked) {
      const absl::Status asked = runner_->Ask(id, RunWish::kStop);
      if (asked.ok() || absl::IsNotFound(asked)) NoteAsked(RunWish::kStop, &run->facts);
    }
    return false;
  }
  switch (action.kind) {
    case RunAction::Kind::kNone:
      return false;
    case RunAction::Kind::kChange:
      NoteChanged((*job)->state, &run->facts);
      if ((*job)->state == JobState::kPaused && (*job)->reason == JobReason::kDiskFull) {
        disk_waits_.Add(**job, NeedsOf(run->facts.pause, run->records.get(), **job),
                        ledger_->Now());
      }
      return true;
    case RunAction::Kind::kForget:
      ForgetRun(id, **job);
      return true;
    case RunAction::Kind::kAsk:
      break;
  }
  const absl::Status asked = runner_->Ask(id, action.wish);
  // NotFound: the run's end is on its way and answers everything.
  if (!asked.ok() && !absl::IsNotFound(asked)) {
    Note(absl::StrCat("job ", id), asked);
    store_failed_ = true;  // as good as: asked again in a moment
    return false;
  }
  NoteAsked(action.wish, &run->facts);
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
  runner_->Ask(id, RunWish::kCancel).IgnoreError();
  run->facts.cancel_asked = true;
  return false;
}

void Scheduler::ForgetRun(const std::string& id, const Job& job) {
  const RunFacts& facts = runs_.at(id).facts;
  const RunEnd& end = facts.end;
  if (facts.first_step > 0) start_waits_.erase(id);
  const bool failed = end.kind == RunEnd::Kind::kFailed;
  if (job.state == JobState::kQueued && failed && IsDiskFull(end.status)) {
    disk_waits_.Add(job, DiskNeedsOf(job), ledger_->Now());
  } else if (job.state == JobState::kQueued && (failed || end.kind == RunEnd::Kind::kNotStarted)) {
    // While others hold memory, waiting for a while does not help.
    const bool others_hold = IsPoolBusy(end.status) && runs_.size() > 1;
    const auto [at, is_new] = start_waits_.try_emplace(id);
    StartWait& wait = at->second;
    if (!is_new && !others_hold) wait.interval = std::min(2 * wait.interval, kStartWaitMax);
    wait.until = others_hold ? absl::InfiniteFuture() : ledger_->Now() + wait.interval;
    wait.runs_ended = runs_ended_ + 1;
    wait.reason = failed ? WaitingReason::kHostMemory : WaitingReason::kNotStarted;
    wait.text = std::string(end.status.message());
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
    const JobPtr job = ledger_->table().Find(id);
    if (run.has_devices && job != nullptr) {
      usage_.Add(job->uid, run.devices.size(), run.since, now);
    }
    run.since = now;
    run.has_devices = run.facts.Occupies();
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
    forecasts_.erase(*id);
    if (records_ != nullptr && job != nullptr) {
      const absl::StatusOr<std::shared_ptr<JobRecords>> records = records_->Open(*id);
      if (records.ok()) (*records)->Close();
    }
    id = unclosed_.erase(id);
  }
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

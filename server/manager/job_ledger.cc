#include "server/manager/job_ledger.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"
#include "server/jobs/restart_rule.h"
#include "server/manager/job_paths.h"
#include "server/manager/request_checks.h"

namespace megatrain {
namespace {

// 36^10 = 3.7e15: two of a million jobs meet with a chance of 1e-4; NewId looks all the same.
constexpr int kIdLetters = 10;

}  // namespace

JobLedger::JobLedger(std::unique_ptr<JobStore> store, Options options)
    : options_(std::move(options)), store_(std::move(store)) {}

absl::StatusOr<std::unique_ptr<JobLedger>> JobLedger::Open(std::unique_ptr<JobStore> store,
                                                           Options options) {
  std::unique_ptr<JobLedger> ledger(new JobLedger(std::move(store), std::move(options)));
  MutexLock lock(&ledger->change_mutex_);
  MT_RETURN_IF_ERROR(ledger->Load());
  return ledger;
}

absl::Status JobLedger::NoteStored(absl::Status status) {
  if (status.ok()) return status;
  ++store_errors_;
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return WithReason(std::move(status), v1::DISK_FULL);
    case absl::StatusCode::kDataLoss:
      return WithReason(std::move(status), v1::CORRUPT_DATA);
    default:
      return WithReason(std::move(status), v1::INTERNAL_ERROR);
  }
}

absl::Status JobLedger::Load() {
  MT_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, store_->ReadAll());
  for (StoredJob& stored : jobs) {
    last_number_ = stored.job.number;
    absl::StatusOr<JobSpec> spec =
        ParseJob(*stored.job.file, options_.state_directory, stored.job.id);
    if (spec.ok()) SetSpec(*std::move(spec), options_.state_directory, &stored.job);
    if (stored.deleted) {
      const std::string id = stored.job.id;
      deleted_[id] = std::make_shared<const Job>(std::move(stored.job));
      continue;
    }
    stored.job.queued = stored.job.updated;
    if (stored.job.state == JobState::kQueued) {
      stored.job.queue.waiting = WaitingReason::kNotConsidered;
    }
    if (IsActive(stored.job.state) && options_.reached_step) {
      stored.job.step = std::max(stored.job.step, options_.reached_step(stored.job.id));
    }
    const Job job = stored.job;
    table_.Put(std::move(stored.job), std::move(stored.events));
    if (std::optional<JobChange> change = ChangeAfterRestart(job)) {
      // While the daemon was away the job used no devices.
      if (IsActive(job.state)) change->time = job.updated;
      MT_RETURN_IF_ERROR(Apply(job, *change).status());
    }
  }
  return absl::OkStatus();
}

absl::Time JobLedger::Now() const {
  return absl::FromUnixMicros(absl::ToUnixMicros(options_.now()));
}

std::string JobLedger::NewId() const {
  static constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::uniform_int_distribution<size_t> letter(0, sizeof(kAlphabet) - 2);
  std::string id;
  do {
    id.clear();
    for (int i = 0; i < kIdLetters; ++i) id += kAlphabet[letter(random)];
  } while (table_.Find(id) != nullptr);
  return id;
}

absl::StatusOr<JobPtr> JobLedger::Add(Job job, const std::string& text,
                                      const std::function<absl::Status()>& admit) {
  MutexLock lock(&change_mutex_);
  if (!job.request_id.empty()) {
    if (JobPtr existing = table_.FindRequest(job.uid, job.request_id)) return existing;
  }
  if (admit) MT_RETURN_IF_ERROR(admit());
  // It may have been deleted meanwhile: its files, and checkpoints with them, are then removed.
  if (!job.checkpoints_with.empty() && table_.Find(job.checkpoints_with) == nullptr) {
    return JobNotFound(job.checkpoints_with);
  }
  job.number = last_number_ + 1;
  job.state = JobState::kQueued;
  job.reason = JobReason::kUserRequest;
  job.reason_text = text;
  job.created = job.updated = job.queued = Now();
  job.version = 1;
  job.queue.waiting = WaitingReason::kNotConsidered;
  const JobEvent event = {.sequence = 1,
                          .time = job.created,
                          .from = std::nullopt,
                          .to = job.state,
                          .reason = job.reason,
                          .text = text};
  MT_RETURN_IF_ERROR(NoteStored(store_->Insert(job, event)));
  last_number_ = job.number;
  const std::string id = job.id;
  Announce(std::move(job), {event});
  return table_.Find(id);
}

absl::StatusOr<JobPtr> JobLedger::Change(const std::string& id, const Decide& decide) {
  MutexLock lock(&change_mutex_);
  const JobPtr job = table_.Find(id);
  if (job == nullptr) return JobNotFound(id);
  MT_ASSIGN_OR_RETURN(const std::optional<JobChange> change, decide(*job));
  if (!change.has_value()) return job;
  return Apply(*job, *change);
}

absl::StatusOr<JobPtr> JobLedger::Apply(const Job& job, const JobChange& change) {
  if (change.to.has_value() && !IsLegalTransition(job.state, *change.to)) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("job ", job.id, " is ", JobStateName(job.state),
                                       "; it cannot become ", JobStateName(*change.to))),
                      v1::ILLEGAL_TRANSITION,
                      {{"job", job.id}, {"state", JobStateName(job.state)}});
  }
  Job next = job;
  next.updated = Now();
  ++next.version;
  if (change.to.has_value()) {
    next.state = *change.to;
    next.reason = change.reason;
    next.reason_text = change.text;
    next.queue = QueuePlace{};
    if (next.state == JobState::kQueued) {
      next.queue.waiting = WaitingReason::kNotConsidered;
      if (job.state != JobState::kPreparing) next.queued = next.updated;
    }
    if (next.state == JobState::kRunning && next.started == absl::InfinitePast()) {
      next.started = next.updated;
    }
    if (IsEnded(next.state)) {
      next.ended = next.updated;
      next.host_retained = next.release_host = false;
    }
  }
  if (change.edit) change.edit(&next);
  std::vector<JobEvent> events;
  if (change.to.has_value() || !change.text.empty()) {
    events.push_back({.sequence = table_.LastEvent(job.id) + 1,
                      .time = change.time.value_or(next.updated),
                      .from = job.state,
                      .to = next.state,
                      .reason = change.reason,
                      .text = change.text});
  }
  MT_RETURN_IF_ERROR(NoteStored(store_->Update(next, events)));
  Announce(std::move(next), std::move(events));
  return table_.Find(job.id);
}

void JobLedger::SetProgress(const std::string& id, const StepRecord& record, double step_seconds) {
  MutexLock lock(&change_mutex_);
  const JobPtr job = table_.Find(id);
  if (job == nullptr) return;
  Job next = *job;
  next.step = record.step;
  next.last_step = record;
  next.step_seconds = step_seconds;
  table_.Put(std::move(next), {});
}

void JobLedger::SetQueuePlaces(const std::map<std::string, QueuePlace>& places) {
  MutexLock lock(&change_mutex_);
  for (const auto& [id, place] : places) {
    const JobPtr job = table_.Find(id);
    if (job == nullptr || job->state != JobState::kQueued || job->queue == place) continue;
    Job next = *job;
    next.queue = place;
    table_.Put(std::move(next), {});
  }
}

absl::Status JobLedger::Delete(const std::string& id,
                               const std::function<absl::Status(const Job& job)>& check) {
  MutexLock lock(&change_mutex_);
  const JobPtr job = table_.Find(id);
  if (job == nullptr) return JobNotFound(id);
  MT_RETURN_IF_ERROR(check(*job));
  if (!IsEnded(job->state)) {
    return NotInThisState(*job, "deleted", "; only jobs that have ended can be: cancel it first");
  }
  // It may go on from this one's checkpoints, which are removed with it.
  for (const JobPtr& other : table_.Live()) {
    if (other->uid == job->uid && other->checkpoints_with == id) {
      return NotInThisState(*job, "deleted",
                            absl::StrCat(": job ", other->id,
                                         ", which has not ended, has its "
                                         "checkpoint.directory there"));
    }
  }
  MT_RETURN_IF_ERROR(NoteStored(store_->MarkDeleted(id)));
  deleted_[id] = job;
  table_.Erase(id);
  TellListeners();
  return absl::OkStatus();
}

std::vector<JobPtr> JobLedger::Deleted() const {
  MutexLock lock(&change_mutex_);
  std::vector<JobPtr> jobs;
  for (const auto& [id, job] : deleted_) jobs.push_back(job);
  return jobs;
}

absl::Status JobLedger::RemoveRow(const std::string& id) {
  MutexLock lock(&change_mutex_);
  MT_RETURN_IF_ERROR(NoteStored(store_->Remove(id)));
  deleted_.erase(id);
  TellListeners();
  return absl::OkStatus();
}

void JobLedger::Announce(Job job, std::vector<JobEvent> events) {
  table_.Put(std::move(job), std::move(events));
  TellListeners();
}

void JobLedger::TellListeners() {
  for (const auto& [owner, listener] : listeners_) listener();
}

void JobLedger::AddListener(const void* owner, std::function<void()> listener) {
  MutexLock lock(&change_mutex_);
  listeners_[owner] = std::move(listener);
}

void JobLedger::RemoveListener(const void* owner) {
  MutexLock lock(&change_mutex_);
  listeners_.erase(owner);
}

}  // namespace megatrain

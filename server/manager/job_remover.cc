#include "server/manager/job_remover.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"
#include "server/files/own_directory.h"
#include "server/manager/job_paths.h"

namespace megatrain {
namespace {

// After a removal that failed.
constexpr double kRetrySeconds = 60;

// Written by a job that died before it could say so.
bool HasCheckpointFiles(const std::string& state_directory, const std::string& id) {
  return OwnDirectoryHas(state_directory, id, "step-").value_or(true);  // rather kept than lost
}

bool HoldsCheckpoints(const Job& job) { return job.own_checkpoints && job.checkpoint_step > 0; }

}  // namespace

absl::Status RemoveJobFiles(const std::string& state_directory, const std::string& id,
                            FileSystem* files, const std::function<bool()>& cancelled) {
  const std::string directory = JobDirectory(state_directory, id);
  const absl::Status there = files->Examine(directory).status();
  if (!there.ok() && !absl::IsNotFound(there)) return there;
  if (!there.ok()) {
    // A removal before may not have been synced.
    const absl::Status synced = files->SyncDirectory(ParentDirectory(directory));
    return absl::IsNotFound(synced) ? absl::OkStatus() : synced;
  }
  // What is left then is the daemon's alone.
  MT_RETURN_IF_ERROR(RemoveOwnDirectory(state_directory, id, cancelled));
  MT_RETURN_IF_ERROR(files->RemoveTree(directory));
  return files->SyncDirectory(ParentDirectory(directory));
}

std::vector<JobPtr> JobsToPrune(const std::vector<JobPtr>& jobs, int64_t keep) {
  const auto ended_before = [](const JobPtr& a, const JobPtr& b) {
    return std::tie(a->ended, a->number) < std::tie(b->ended, b->number);
  };
  std::map<int64_t, std::vector<JobPtr>> by_user;
  for (const JobPtr& job : jobs) {
    if (IsEnded(job->state) && !HoldsCheckpoints(*job)) by_user[job->uid].push_back(job);
  }
  std::vector<JobPtr> pruned;
  for (auto& [uid, ended] : by_user) {
    std::sort(ended.begin(), ended.end(), ended_before);
    const auto surplus = static_cast<int64_t>(ended.size()) - keep;
    for (int64_t i = 0; i < surplus; ++i) pruned.push_back(ended[static_cast<size_t>(i)]);
  }
  std::sort(pruned.begin(), pruned.end(), ended_before);
  return pruned;
}

JobRemover::JobRemover(JobLedger* ledger, JobRecordsDirectory* records, Options options)
    : ledger_(ledger),
      records_(records),
      options_(std::move(options)),
      keep_ended_jobs_(options_.keep_ended_jobs) {
  ledger_->AddListener(this, [this] {
    MutexLock lock(&mutex_);
    woken_ = true;
    changed_.NotifyAll();
  });
}

JobRemover::~JobRemover() {
  ledger_->RemoveListener(this);
  stopping_ = true;
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void JobRemover::Start() { thread_ = std::thread(&JobRemover::Loop, this); }

void JobRemover::SetKeepEndedJobs(int64_t jobs) {
  keep_ended_jobs_ = jobs;
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

void JobRemover::Loop() {
  NameThisThread("remover");
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!woken_ && !stopping_) {
        if (failed_.empty()) {
          changed_.Wait(&mutex_);
        } else if (!changed_.WaitFor(&mutex_, kRetrySeconds)) {
          break;
        }
      }
      if (stopping_) return;
      woken_ = false;
    }
    RunRound();
  }
}

void JobRemover::RunRound() {
  Prune();
  RemoveDeleted();
}

void JobRemover::Prune() {
  const int64_t keep = keep_ended_jobs_;
  if (keep == 0) return;
  int64_t ended = 0;
  for (const auto& [how, jobs] : ledger_->table().Endings()) ended += jobs;
  if (ended == ended_ && keep == kept_) return;
  ended_ = ended;
  kept_ = keep;
  for (const JobPtr& job : JobsToPrune(ledger_->table().All(), keep)) {
    if (stopping_) return;
    if (HasCheckpointFiles(ledger_->state_directory(), job->id)) continue;
    // Errors: it was deleted by its user meanwhile, another job writes its checkpoints there, or
    // the store cannot be written; then again when the next job has ended.
    const absl::Status status =
        ledger_->Delete(job->id, [](const Job&) { return absl::OkStatus(); });
    if (status.ok() && options_.log) {
      options_.log(
          absl::StrCat("job ", job->id, " of ", job->user, ", which ended ",
                       absl::FormatTime(absl::RFC3339_sec, job->ended, absl::UTCTimeZone()),
                       ", is forgotten: keep_ended_jobs_per_user is ", keep));
    }
  }
}

void JobRemover::RemoveDeleted() {
  std::map<int64_t, std::vector<JobPtr>> by_user;
  for (const JobPtr& job : ledger_->Deleted()) by_user[job->uid].push_back(job);
  for (const auto& [uid, jobs] : by_user) {
    const absl::Time end = absl::Now() + absl::Seconds(options_.turn_seconds);
    const auto interrupted = [this, end] { return stopping_ || absl::Now() >= end; };
    for (size_t i = 0; i < jobs.size(); ++i) {
      if ((i == 0 || !interrupted()) && Remove(*jobs[i], interrupted)) continue;
      if (stopping_) return;
      MutexLock lock(&mutex_);
      woken_ = true;
      break;
    }
  }
}

bool JobRemover::Remove(const Job& job, const std::function<bool()>& interrupted) {
  records_->Remove(job.id);
  absl::Status status =
      RemoveJobFiles(ledger_->state_directory(), job.id, options_.files, interrupted);
  if (absl::IsCancelled(status)) return false;
  if (status.ok() && options_.disk != nullptr) options_.disk->Forget(job.id);
  if (status.ok()) status = ledger_->RemoveRow(job.id);
  if (status.ok()) {
    failed_.erase(job.id);
  } else if (failed_.insert(job.id).second && options_.log) {
    options_.log(absl::StrCat("job ", job.id, " was deleted, and what it left cannot be removed",
                              " yet: ", status.message()));
  }
  return true;
}

}  // namespace megatrain

// The scheduler's part in full disks and users' limits.
#include "absl/strings/str_cat.h"
#include "server/scheduler/scheduler.h"

namespace megatrain {

void Scheduler::SettleDiskWaits() {
  const absl::Time now = ledger_->Now();
  for (const JobPtr& job : ledger_->table().Live()) {
    const bool pauses = job->state == JobState::kPaused && job->reason == JobReason::kDiskFull;
    if (!pauses) {
      // Queued ones are asked when the queue is looked at, unless a user has put them there; the
      // others do not wait any more.
      const bool queued = job->state == JobState::kQueued && job->reason == JobReason::kDiskFull;
      if (!queued) disk_waits_.EndWait(job->id);
      continue;
    }
    // Paused before the process was started.
    if (!disk_waits_.Waits(job->id)) disk_waits_.Add(*job, DiskNeedsOf(*job), now);
    if (stopping_ || !disk_waits_.LookForRoom(*job, now)) continue;
    const absl::StatusOr<JobPtr> resumed =
        Change(job->id, JobState::kPaused,
               {JobState::kQueued, JobReason::kDiskFull, "there is room on the disk again", {}});
    if (resumed.ok()) disk_waits_.EndWait(job->id);
  }
}

void Scheduler::MeasureDisk(const std::string& id) {
  if (options_.disk == nullptr) return;
  const JobPtr job = ledger_->table().Find(id);
  if (job == nullptr) return;
  options_.disk->Measure(*job);
  const JobPtr with = ledger_->table().Find(job->checkpoints_with);
  if (with != nullptr) options_.disk->Measure(*with);
}

void Scheduler::SettleDiskLimit() {
  if (options_.disk == nullptr) return;
  for (const JobPtr& job : ledger_->table().Live()) {
    const bool paused = job->state == JobState::kPaused && job->reason == JobReason::kDiskLimit;
    // One that has made its last step is about to end.
    const bool runs = job->state == JobState::kRunning && job->step < job->total_steps;
    if (!paused && !runs) continue;
    std::string over = options_.disk->WhyOverLimit(*job);
    // Those that fail are tried again in the next round.
    if (runs && !over.empty() && !stopping_) {
      Change(job->id, JobState::kRunning,
             {JobState::kPausing, JobReason::kDiskLimit, std::move(over), {}})
          .IgnoreError();
    } else if (paused && over.empty() && !stopping_) {
      Change(job->id, JobState::kPaused,
             {JobState::kQueued,
              JobReason::kDiskLimit,
              "its user's jobs hold less beneath the state directory",
              {}})
          .IgnoreError();
    }
  }
}

}  // namespace megatrain

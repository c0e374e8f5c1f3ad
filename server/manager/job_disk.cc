#include "server/manager/job_disk.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/directory_tree.h"
#include "server/files/own_directory.h"

namespace megatrain {

namespace {

bool InStateDirectory(const Job& job) {
  return job.own_checkpoints || !job.checkpoints_with.empty();
}

}  // namespace

int64_t OwnCheckpointBytes(const Job& job) {
  if (!InStateDirectory(job) || job.spec == nullptr) return 0;
  // checkpoint.keep may be as large as its type takes.
  const int64_t beside = job.spec->training.keep_best ? 2 : 1;
  int64_t count = 0, bytes = 0;
  const bool too_many = __builtin_add_overflow(job.spec->checkpoint.keep, beside, &count) ||
                        __builtin_mul_overflow(count, job.checkpoint_bytes, &bytes);
  return too_many ? std::numeric_limits<int64_t>::max() : bytes;
}

JobDisk::JobDisk(std::string state_directory, const SharedUserLimits* limits)
    : state_directory_(std::move(state_directory)), limits_(limits) {}

void JobDisk::Measure(const Job& job) {
  const int64_t limit = limits_->Get().disk_bytes;
  if (limit == 0) return;
  {
    MutexLock lock(&mutex_);
    jobs_[job.id].uid = job.uid;
  }
  const TreeSize size = MeasureJobDirectory(state_directory_, job.id);
  const int64_t bytes = size.whole ? size.bytes : std::max(size.bytes, limit);
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job.id);
  if (found == jobs_.end()) return;  // forgotten meanwhile: its files are gone
  users_[job.uid] += bytes - found->second.bytes;
  found->second = {.uid = job.uid, .bytes = bytes, .too_deep = !size.whole};
}

void JobDisk::Forget(const std::string& job_id) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return;
  users_[found->second.uid] -= found->second.bytes;
  jobs_.erase(found);
}

int64_t JobDisk::JobBytes(const std::string& job_id) const {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? 0 : found->second.bytes;
}

int64_t JobDisk::UserBytes(int64_t uid) const {
  MutexLock lock(&mutex_);
  const auto found = users_.find(uid);
  return found == users_.end() ? 0 : found->second;
}

int64_t JobDisk::UserReservedBytes(int64_t uid, const JobTable& table) const {
  int64_t bytes = 0;
  for (const JobPtr& job : table.Live()) {
    if (job->uid != uid) continue;
    const int64_t held = JobBytes(job->own_checkpoints ? job->id : job->checkpoints_with);
    const int64_t more = std::max<int64_t>(OwnCheckpointBytes(*job) - held, 0);
    if (__builtin_add_overflow(bytes, more, &bytes)) return std::numeric_limits<int64_t>::max();
  }
  return bytes;
}

std::string JobDisk::NoteOnUnmeasured(int64_t uid) const {
  MutexLock lock(&mutex_);
  for (const auto& [id, held] : jobs_) {
    if (held.uid != uid || !held.too_deep) continue;
    return absl::StrCat(
        "; job ", id, " holds directories ", kTreeLevelsMax,
        " levels deep or more, or closed to their owner, which are not measured, and counts "
        "as all of ",
        kDiskLimit,
        " until it is deleted, which closed ones prevent, or measured without them: at its next "
        "checkpoint, its end, or the daemon's start");
  }
  return "";
}

std::string JobDisk::WhyOverLimit(const Job& job) const {
  const int64_t limit = limits_->Get().disk_bytes;
  if (limit == 0 || !InStateDirectory(job)) return "";
  const int64_t held = UserBytes(job.uid);
  if (held + job.checkpoint_bytes <= limit) return "";
  return absl::StrCat("its user's jobs hold ", FormatBytesShort(held),
                      " beneath the state directory", NoteOnUnmeasured(job.uid),
                      ", and its next checkpoint takes ", FormatBytesShort(job.checkpoint_bytes),
                      "; a user may have ", FormatBytesShort(limit), " (", kDiskLimit,
                      "). It goes on when ended jobs are deleted: megatrain delete JOB");
}

}  // namespace megatrain

#include "server/manager/user_limit_check.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

absl::Status LimitReached(const char* limit, int64_t value, const std::string& message) {
  return WithReason(absl::ResourceExhaustedError(message), v1::LIMIT_REACHED,
                    {{"limit", limit}, {"value", absl::StrCat(value)}});
}

absl::Status ExceedsLimit(const char* limit, int64_t value, const std::string& message) {
  return WithReason(absl::FailedPreconditionError(message), v1::EXCEEDS_USER_LIMIT,
                    {{"limit", limit}, {"value", absl::StrCat(value)}});
}

// "a user may have 5.00 GiB (limits.disk_per_user of the daemon's configuration)".
std::string MayHave(const char* limit, const std::string& value) {
  return absl::StrCat("a user may have ", value, " (", limit, " of the daemon's configuration)");
}

absl::Status CheckQueue(const UserLimits& limits, const Job& job, const JobTable& table) {
  if (limits.queued_jobs == 0) return absl::OkStatus();
  int64_t queued = 0;
  for (const JobPtr& other : table.Live()) {
    queued += other->uid == job.uid && other->state == JobState::kQueued;
  }
  if (queued < limits.queued_jobs) return absl::OkStatus();
  return LimitReached(
      kQueuedJobsLimit, limits.queued_jobs,
      absl::StrCat("you have ", queued, queued == 1 ? " job" : " jobs", " in the queue; ",
                   MayHave(kQueuedJobsLimit, absl::StrCat(limits.queued_jobs)),
                   ". Wait until one has started, or cancel one"));
}

absl::Status CheckHostMemory(const UserLimits& limits, const Job& job) {
  if (limits.host_bytes == 0 || job.pool_bytes <= limits.host_bytes) return absl::OkStatus();
  return ExceedsLimit(
      kHostMemoryLimit, limits.host_bytes,
      absl::StrCat("the job needs ", FormatBytes(job.pool_bytes), " of host memory; ",
                   MayHave(kHostMemoryLimit, FormatBytes(limits.host_bytes)),
                   ". Make the job smaller"));
}

absl::Status CheckDevices(const UserLimits& limits, const Job& job, const HostDevices& devices) {
  if (limits.devices == 0 || job.spec == nullptr) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const DeviceClaim claim,
                      ClaimDevices(job.spec->engine.device, job.spec->engine.devices, devices));
  if (claim.count <= limits.devices) return absl::OkStatus();
  return ExceedsLimit(kDevicesLimit, limits.devices,
                      absl::StrCat("the job needs ", claim.count, " devices; ",
                                   MayHave(kDevicesLimit, absl::StrCat(limits.devices)),
                                   ". Ask for fewer by engine.devices"));
}

absl::Status CheckDisk(const UserLimits& limits, const Job& job, const JobTable& table,
                       const JobDisk* disk) {
  const int64_t needed = OwnCheckpointBytes(job);
  if (limits.disk_bytes == 0 || disk == nullptr || needed == 0) return absl::OkStatus();
  const std::string need = absl::StrCat(
      "the job's checkpoints take ", FormatBytesShort(needed),
      " beneath the daemon's state directory (checkpoint.keep: ", job.spec->checkpoint.keep,
      job.spec->training.keep_best ? ", the best, by training.keep_best" : "",
      ", and one being written, of ", FormatBytesShort(job.checkpoint_bytes), " each)");
  const std::string may_have = MayHave(kDiskLimit, FormatBytesShort(limits.disk_bytes));
  if (needed > limits.disk_bytes) {
    return ExceedsLimit(kDiskLimit, limits.disk_bytes,
                        absl::StrCat(need, "; ", may_have,
                                     ". Keep fewer, or name a checkpoint.directory of your own"));
  }
  const int64_t held = disk->UserBytes(job.uid);
  const int64_t reserved = disk->UserReservedBytes(job.uid, table);
  // Those of another job from which it goes on are replaced.
  const int64_t more = std::max<int64_t>(needed - disk->JobBytes(job.checkpoints_with), 0);
  if (reserved <= limits.disk_bytes - more - held) return absl::OkStatus();
  return LimitReached(
      kDiskLimit, limits.disk_bytes,
      absl::StrCat(need, "; your other jobs hold ", FormatBytesShort(held), " there and will take ",
                   FormatBytesShort(reserved), " more", disk->NoteOnUnmeasured(job.uid), "; ",
                   may_have,
                   ". Delete jobs that have ended (megatrain delete JOB), or name a "
                   "checkpoint.directory of your own"));
}

}  // namespace

absl::Status CheckUserLimits(const UserLimits& limits, const Job& job, const HostDevices& devices,
                             const JobTable& table, const JobDisk* disk) {
  MT_RETURN_IF_ERROR(CheckDevices(limits, job, devices));
  MT_RETURN_IF_ERROR(CheckHostMemory(limits, job));
  MT_RETURN_IF_ERROR(CheckDisk(limits, job, table, disk));
  return CheckQueue(limits, job, table);
}

}  // namespace megatrain

#include "server/jobs/admission.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "server/jobs/error_reason.h"

namespace megatrain {
namespace {

absl::Status LimitReached(const char* limit, int64_t value, const std::string& message) {
  return WithReason(absl::ResourceExhaustedError(message), "LIMIT_REACHED",
                    {{"limit", limit}, {"value", absl::StrCat(value)}});
}

}  // namespace

absl::Status CheckUserLimits(const UserLimits& limits, const Job& job, const JobTable& table) {
  if (limits.host_bytes > 0 && job.pool_bytes > limits.host_bytes) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "the job needs ", FormatBytes(job.pool_bytes), " of host memory; a user may have ",
            FormatBytes(limits.host_bytes), " (", kHostMemoryLimit,
            " of the daemon's configuration). Make the job smaller")),
        "EXCEEDS_USER_LIMIT",
        {{"limit", kHostMemoryLimit}, {"value", absl::StrCat(limits.host_bytes)}});
  }
  if (limits.queued_jobs > 0) {
    int64_t queued = 0;
    for (const JobPtr& other : table.Live()) {
      queued += other->uid == job.uid && other->state == JobState::kQueued;
    }
    if (queued >= limits.queued_jobs) {
      return LimitReached(
          kQueuedJobsLimit, limits.queued_jobs,
          absl::StrCat("you have ", queued, queued == 1 ? " job" : " jobs",
                       " in the queue; a user may have ", limits.queued_jobs, " (",
                       kQueuedJobsLimit,
                       " of the daemon's configuration). Wait until one has started, or cancel "
                       "one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain

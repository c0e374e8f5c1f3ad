// Decides whether a user may submit one more job.
#ifndef MEGATRAIN_SERVER_MANAGER_ADMISSION_H_
#define MEGATRAIN_SERVER_MANAGER_ADMISSION_H_

#include "absl/status/status.h"
#include "server/jobs/job.h"
#include "server/jobs/user_limits.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_table.h"

namespace megatrain {

// `disk` may be null: limits.disk_bytes is then not checked. FailedPrecondition
// (EXCEEDS_USER_LIMIT) for a job that alone needs more than its user may have: waiting does not
// help. ResourceExhausted (LIMIT_REACHED) if the user's other jobs leave no room for it.
absl::Status CheckUserLimits(const UserLimits& limits, const Job& job, const JobTable& table,
                             const JobDisk* disk);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_ADMISSION_H_

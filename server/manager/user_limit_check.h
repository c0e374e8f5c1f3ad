// Decides whether a user may submit one more job.
#ifndef MEGATRAIN_SERVER_MANAGER_USER_LIMIT_CHECK_H_
#define MEGATRAIN_SERVER_MANAGER_USER_LIMIT_CHECK_H_

#include "absl/status/status.h"
#include "engine/host/host_devices.h"
#include "server/jobs/job.h"
#include "server/jobs/user_limits.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_table.h"

namespace megatrain {

// Returns OK if the user of `job` may submit it, to a host with `devices`, beside the jobs of
// `table`. Returns FailedPrecondition (EXCEEDS_USER_LIMIT) if the job alone needs more than its
// user may have, so that waiting does not help. Returns ResourceExhausted (LIMIT_REACHED) if the
// user's other jobs leave no room for it in the queue or on the disk. The devices and the memory of
// those jobs only make it wait (queue_policy.h). Returns the errors of ClaimDevices if devices are
// limited. If `disk` is null, limits.disk_bytes is not checked. May be called from any thread.
// REQUIRES: the fields of `job` that are from its file and its plan are set.
absl::Status CheckUserLimits(const UserLimits& limits, const Job& job, const HostDevices& devices,
                             const JobTable& table, const JobDisk* disk);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_USER_LIMIT_CHECK_H_

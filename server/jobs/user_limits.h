// Limits on what one user may have of the daemon at a time. A limit of 0 means that there is none.
//
// A new job is refused if
// - it alone needs more than a limit;
// - its user has queued_jobs jobs in the queue already;
// - its checkpoints would exceed disk_bytes, together with what the user's other jobs hold and will
//   still take beneath the state directory.
// A job that would exceed another limit now waits in the queue. A running job whose next checkpoint
// would exceed disk_bytes is paused.
//
// The limits hold for administrators too, because they bound what the daemon must keep. A job
// counts for the user who submitted it, whoever else controls it.
#ifndef MEGATRAIN_SERVER_JOBS_USER_LIMITS_H_
#define MEGATRAIN_SERVER_JOBS_USER_LIMITS_H_

#include <cstdint>

#include "engine/base/mutex.h"

namespace megatrain {

struct UserLimits {
  int64_t queued_jobs = 0;   // QUEUED; a new one beyond it is refused
  int64_t running_jobs = 0;  // active: from PREPARING until the device is free again
  int64_t devices = 0;       // of active jobs
  int64_t host_bytes = 0;    // of the pool, for active jobs and paused ones that keep their memory
  int64_t disk_bytes = 0;    // beneath the state directory

  bool operator==(const UserLimits&) const = default;
};

// SharedUserLimits holds the limits that apply now. They may be replaced while others read them.
//
// Thread safety: all methods may be called from any thread.
class SharedUserLimits {
 public:
  explicit SharedUserLimits(const UserLimits& limits) : limits_(limits) {}

  UserLimits Get() const {
    MutexLock lock(&mutex_);
    return limits_;
  }
  void Set(const UserLimits& limits) {
    MutexLock lock(&mutex_);
    limits_ = limits;
  }

 private:
  mutable Mutex mutex_;
  UserLimits limits_ ABSL_GUARDED_BY(mutex_);
};

// The names of the limits in the configuration and in errors.
inline constexpr char kQueuedJobsLimit[] = "limits.queued_jobs_per_user";
inline constexpr char kRunningJobsLimit[] = "limits.running_jobs_per_user";
inline constexpr char kDevicesLimit[] = "limits.devices_per_user";
inline constexpr char kHostMemoryLimit[] = "limits.host_memory_per_user";
inline constexpr char kDiskLimit[] = "limits.disk_per_user";

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_USER_LIMITS_H_

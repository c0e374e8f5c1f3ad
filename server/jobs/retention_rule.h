// Decides which ended jobs the daemon deletes by itself. The decision has no side effects.
#ifndef MEGATRAIN_SERVER_JOBS_RETENTION_RULE_H_
#define MEGATRAIN_SERVER_JOBS_RETENTION_RULE_H_

#include <cstdint>
#include <vector>

#include "server/jobs/job.h"

namespace megatrain {

// Returns true if the job has checkpoints in its own directory. They are its user's work, and only
// the user deletes them.
bool HoldsCheckpoints(const Job& job);

// Returns the jobs to delete, the oldest first: each user's ended jobs without checkpoints, but for
// the `keep` that ended last. 0 keeps none.
std::vector<JobPtr> JobsToPrune(const std::vector<JobPtr>& jobs, int64_t keep);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_RETENTION_RULE_H_

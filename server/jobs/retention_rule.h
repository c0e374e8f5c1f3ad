// Which ended jobs the daemon forgets by itself: a pure function.
#ifndef MEGATRAIN_SERVER_JOBS_RETENTION_RULE_H_
#define MEGATRAIN_SERVER_JOBS_RETENTION_RULE_H_

#include <cstdint>
#include <vector>

#include "server/jobs/job.h"

namespace megatrain {

// Whether the daemon keeps checkpoints for the job, in its own directory: its user's work, which
// only the user throws away.
bool HoldsCheckpoints(const Job& job);

// Of each user's ended jobs that hold none all but the `keep` that ended last, the oldest first.
std::vector<JobPtr> JobsToPrune(const std::vector<JobPtr>& jobs, int64_t keep);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_RETENTION_RULE_H_

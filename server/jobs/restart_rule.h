// Decides what becomes of a job whose process died, without side effects.
//
// The job's state follows StateAfterRestart. A death while it was being prepared or trained counts
// against the job if it got no further than at the death before, neither by a step nor by a
// checkpoint. The first death is compared with the job's beginning. kDeathsMax such deaths in a row
// fail the job. Its host memory is lost, so that it goes on from its newest checkpoint.
#ifndef MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_
#define MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_

#include <optional>

#include "server/jobs/job.h"
#include "server/jobs/job_change.h"

namespace megatrain {

inline constexpr int kDeathsMax = 5;

// Returns the change that the death makes to the job; nullopt if it does not concern the job.
std::optional<JobChange> ChangeAfterRestart(const Job& job);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_

// Decides what becomes of a job when the daemon's process has died, or must end because of the job
// (its device was lost). The decision has no side effects.
//
// StateAfterRestart (job_state_machine.h) gives the job's new state, unless the job fails by the
// rule below. The job has lost its host memory. If it goes on, it does so from its newest
// checkpoint, or from the beginning if it has none.
//
// Deaths while a job is PREPARING or RUNNING are counted, so that a job that kills the daemon again
// and again does not go on forever. A death counts if the job got no further than at the death
// before: neither its step nor its checkpoint_step is higher. The first death is compared with 0. A
// death at which the job has got further does not count, and sets the count back to 0. At the
// kDeathsMax-th counted death in a row the job fails. A death counts for all jobs that were
// PREPARING or RUNNING, because it is not known which of them caused it.
#ifndef MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_
#define MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_

#include <optional>
#include <string>

#include "server/jobs/job.h"

namespace megatrain {

inline constexpr int kDeathsMax = 5;

// Returns the change that the death of the process makes to the job. Returns nullopt if the job has
// ended, or if it is QUEUED or PAUSED without host memory that was kept. With such memory the
// change has no `to`: the memory is lost, and job.step goes back to checkpoint_step. A job that is
// PAUSING or CANCELLING keeps its reason. REQUIRES: job.step is the last step that the job had
// done.
std::optional<JobChange> ChangeAfterRestart(const Job& job);

// Returns the change to a job because of which the process ends. `what` says why ("its device was
// lost"). The rule for deaths applies. The reason is kRepeatedDeaths if the job fails, else
// kProcessRestart. REQUIRES: the job is PREPARING or RUNNING.
JobChange ChangeAfterLoss(const Job& job, const std::string& what);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_

// Decides what becomes of a job when the daemon's process has died, or must end because of the job
// (its device was lost). The decision has no side effects.
//
// StateAfterRestart (job_state_machine.h) gives the job's new state. The job has lost its host
// memory, and goes on from its newest checkpoint.
//
// Deaths during preparation and training are counted, so that a job that kills the daemon again and
// again does not go on for ever. A death counts if the job got no further than at the death before:
// neither its step nor its checkpoint_step is higher. (The first one is compared with 0.) After
// kDeathsMax such deaths in a row the job fails. A death counts for all jobs that were at work side
// by side, because nobody knows whose it was.
#ifndef MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_
#define MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_

#include <optional>
#include <string>

#include "server/jobs/job.h"

namespace megatrain {

inline constexpr int kDeathsMax = 5;

// Returns the change that the death makes to the job; nullopt if it does not concern the job.
std::optional<JobChange> ChangeAfterRestart(const Job& job);

// Returns the change to a job because of which the process ends. `what` says why ("its device was
// lost"). It counts as a death. REQUIRES: the job is PREPARING or RUNNING.
JobChange ChangeAfterLoss(const Job& job, const std::string& what);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_RESTART_RULE_H_

// The states of a job, and which may follow which.
#ifndef MEGATRAIN_SERVER_JOBS_JOB_STATE_MACHINE_H_
#define MEGATRAIN_SERVER_JOBS_JOB_STATE_MACHINE_H_

#include <optional>
#include <string>
#include <vector>

#include "megatrain/v1/job.pb.h"

namespace megatrain {

// Legal transitions; every other is refused:
//   QUEUED     -> PREPARING | CANCELLED | FAILED
//   PREPARING  -> RUNNING | QUEUED | CANCELLING | FAILED
//   RUNNING    -> PAUSING | CANCELLING | SUCCEEDED | FAILED | QUEUED
//   PAUSING    -> PAUSED | RUNNING | CANCELLING | SUCCEEDED | FAILED
//   PAUSED     -> QUEUED (resume) | CANCELLING
//   CANCELLING -> CANCELLED | FAILED
// After a restart of the process: PREPARING, RUNNING -> QUEUED; PAUSING -> PAUSED;
// CANCELLING -> CANCELLED. The numbers are the API's.
enum class JobState {
  kQueued = v1::Job::QUEUED,        // waits for its turn
  kPreparing = v1::Job::PREPARING,  // reads data and model, or takes its device again; no steps
  kRunning = v1::Job::RUNNING,      // trains
  // Pauses, for a user, a full disk or a limit. The step under way ends, or is given up in its
  // first forward pass.
  kPausing = v1::Job::PAUSING,
  kPaused = v1::Job::PAUSED,          // holds no device; holds host memory unless that is gone
  kCancelling = v1::Job::CANCELLING,  // is asked to end; the step under way is abandoned
  kSucceeded = v1::Job::SUCCEEDED,    // all steps done, or stopped by stop_after_worse; all saved
  kFailed = v1::Job::FAILED,          // stopped by an error; the reason says which
  kCancelled = v1::Job::CANCELLED,    // stopped by a user
};

// Returns true if the table above has the transition. It has none from a state to itself.
bool IsLegalTransition(JobState from, JobState to);

// Returns the state of a job in `state` after its process has died: a legal transition, or `state`.
JobState StateAfterRestart(JobState state);

// Returns true for the states from which no transition leads: SUCCEEDED, FAILED, CANCELLED.
bool IsEnded(JobState state);
// Returns true if the engine is at work for the job, or was a moment ago: PREPARING, RUNNING,
// PAUSING, CANCELLING.
bool IsActive(JobState state);

// Returns all states in the order of the enum. The result lives as long as the process.
const std::vector<JobState>& AllJobStates();

// Returns the API's name, for example "QUEUED". Users and the store use these names too. The result
// lives as long as the process.
const std::string& JobStateName(JobState state);
// Returns the state that has this JobStateName, or nullopt if none has.
std::optional<JobState> ParseJobState(const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_JOB_STATE_MACHINE_H_

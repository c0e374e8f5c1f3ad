// The states of a job, and which may follow which.
#ifndef MEGATRAIN_SERVER_JOBS_JOB_STATE_MACHINE_H_
#define MEGATRAIN_SERVER_JOBS_JOB_STATE_MACHINE_H_

#include <optional>
#include <string_view>
#include <vector>

namespace megatrain {

// Legal transitions; every other is refused:
//   QUEUED     -> PREPARING | CANCELLED | FAILED
//   PREPARING  -> RUNNING | QUEUED | CANCELLING | FAILED
//   RUNNING    -> PAUSING | CANCELLING | SUCCEEDED | FAILED | QUEUED
//   PAUSING    -> PAUSED | RUNNING | CANCELLING | SUCCEEDED | FAILED
//   PAUSED     -> QUEUED (resume) | CANCELLING
//   CANCELLING -> CANCELLED | FAILED
// After a restart of the process: PREPARING, RUNNING -> QUEUED; PAUSING -> PAUSED;
// CANCELLING -> CANCELLED.
enum class JobState {
  kQueued,      // waits for its turn
  kPreparing,   // data and model are being read; no step yet
  kRunning,     // trains
  kPausing,     // was asked to pause; the step under way ends first
  kPaused,      // holds no device; holds host memory unless that was released
  kCancelling,  // was asked to stop; the step under way ends first
  kSucceeded,   // all steps are done; the checkpoint and the output are on disk
  kFailed,      // stopped by an error; the reason says which
  kCancelled,   // stopped by a user
};

bool IsLegalTransition(JobState from, JobState to);

// Returns the state of a job in `state` after its process has died: a legal transition, or `state`.
JobState StateAfterRestart(JobState state);

// Returns true for the states from which no transition leads: SUCCEEDED, FAILED, CANCELLED.
bool IsEnded(JobState state);
// Returns true if the engine is at work for the job, or was a moment ago: PREPARING, RUNNING,
// PAUSING, CANCELLING.
bool IsActive(JobState state);

// Returns all states in the order of the enum.
const std::vector<JobState>& AllJobStates();

// Returns "QUEUED": the name that users, the API and the store use.
const char* JobStateName(JobState state);
// Returns nullopt for a text that is no such name.
std::optional<JobState> ParseJobState(std::string_view name);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_JOB_STATE_MACHINE_H_

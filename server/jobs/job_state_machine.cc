#include "server/jobs/job_state_machine.h"

#include <algorithm>

namespace megatrain {
namespace {

const std::vector<JobState>& Successors(JobState state) {
  using S = JobState;
  static const std::vector<JobState> queued = {S::kPreparing, S::kCancelled, S::kFailed};
  static const std::vector<JobState> preparing = {S::kRunning, S::kQueued, S::kCancelling,
                                                  S::kFailed};
  static const std::vector<JobState> running = {S::kPausing, S::kCancelling, S::kSucceeded,
                                                S::kFailed, S::kQueued};
  static const std::vector<JobState> pausing = {S::kPaused, S::kRunning, S::kCancelling,
                                                S::kSucceeded, S::kFailed};
  static const std::vector<JobState> paused = {S::kQueued, S::kCancelling};
  static const std::vector<JobState> cancelling = {S::kCancelled, S::kFailed};
  static const std::vector<JobState> none;
  switch (state) {
    case S::kQueued:
      return queued;
    case S::kPreparing:
      return preparing;
    case S::kRunning:
      return running;
    case S::kPausing:
      return pausing;
    case S::kPaused:
      return paused;
    case S::kCancelling:
      return cancelling;
    case S::kSucceeded:
    case S::kFailed:
    case S::kCancelled:
      return none;
  }
  return none;
}

}  // namespace

bool IsLegalTransition(JobState from, JobState to) {
  const std::vector<JobState>& successors = Successors(from);
  return std::find(successors.begin(), successors.end(), to) != successors.end();
}

JobState StateAfterRestart(JobState state) {
  switch (state) {
    case JobState::kPreparing:
    case JobState::kRunning:
      return JobState::kQueued;
    case JobState::kPausing:
      return JobState::kPaused;
    case JobState::kCancelling:
      return JobState::kCancelled;
    default:
      return state;
  }
}

bool IsEnded(JobState state) { return Successors(state).empty(); }

bool IsActive(JobState state) { return StateAfterRestart(state) != state; }

const std::vector<JobState>& AllJobStates() {
  static const std::vector<JobState> states = {
      JobState::kQueued,    JobState::kPreparing, JobState::kRunning,
      JobState::kPausing,   JobState::kPaused,    JobState::kCancelling,
      JobState::kSucceeded, JobState::kFailed,    JobState::kCancelled};
  return states;
}

const std::string& JobStateName(JobState state) {
  return v1::Job::State_Name(static_cast<int>(state));
}

std::optional<JobState> ParseJobState(const std::string& name) {
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
  v1::Job::State_Parse(name, &state);
  if (state == v1::Job::STATE_UNSPECIFIED) return std::nullopt;
  return static_cast<JobState>(state);
}

}  // namespace megatrain

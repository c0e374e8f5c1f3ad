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

const char* JobStateName(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "QUEUED";
    case JobState::kPreparing:
      return "PREPARING";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kPausing:
      return "PAUSING";
    case JobState::kPaused:
      return "PAUSED";
    case JobState::kCancelling:
      return "CANCELLING";
    case JobState::kSucceeded:
      return "SUCCEEDED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kCancelled:
      return "CANCELLED";
  }
  return "UNKNOWN";
}

std::optional<JobState> ParseJobState(std::string_view name) {
  for (const JobState state : AllJobStates()) {
    if (name == JobStateName(state)) return state;
  }
  return std::nullopt;
}

}  // namespace megatrain

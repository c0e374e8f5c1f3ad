#include "server/jobs/job_state_machine.h"

#include <initializer_list>

#include "absl/algorithm/container.h"

namespace megatrain {
namespace {

using S = JobState;

struct Successors {
  S from;
  std::initializer_list<S> to;
};

constexpr Successors kSuccessors[] = {
    {S::kQueued, {S::kPreparing, S::kCancelled, S::kFailed}},
    {S::kPreparing, {S::kRunning, S::kQueued, S::kCancelling, S::kFailed}},
    {S::kRunning, {S::kPausing, S::kCancelling, S::kSucceeded, S::kFailed, S::kQueued}},
    {S::kPausing, {S::kPaused, S::kRunning, S::kCancelling, S::kSucceeded, S::kFailed}},
    {S::kPaused, {S::kQueued, S::kCancelling}},
    {S::kCancelling, {S::kCancelled, S::kFailed}},
};

}  // namespace

bool IsLegalTransition(JobState from, JobState to) {
  return absl::c_any_of(kSuccessors, [&](const Successors& each) {
    return each.from == from && absl::c_linear_search(each.to, to);
  });
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

bool IsEnded(JobState state) {
  return absl::c_none_of(kSuccessors, [&](const Successors& each) { return each.from == state; });
}

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

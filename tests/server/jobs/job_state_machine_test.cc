#include "server/jobs/job_state_machine.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace megatrain {
namespace {

// The table as users read it, in words.
const std::set<std::string>& LegalTransitions() {
  static const std::set<std::string> legal = {
      "QUEUED PREPARING",   "QUEUED CANCELLED",     "QUEUED FAILED",      "PREPARING RUNNING",
      "PREPARING QUEUED",   "PREPARING CANCELLING", "PREPARING FAILED",   "RUNNING PAUSING",
      "RUNNING CANCELLING", "RUNNING SUCCEEDED",    "RUNNING FAILED",     "RUNNING QUEUED",
      "PAUSING PAUSED",     "PAUSING RUNNING",      "PAUSING CANCELLING", "PAUSING SUCCEEDED",
      "PAUSING FAILED",     "PAUSED QUEUED",        "PAUSED CANCELLING",  "CANCELLING CANCELLED",
      "CANCELLING FAILED"};
  return legal;
}

TEST(JobStateMachineTest, EveryPairIsLegalOrNotAsTheTableSays) {
  for (const JobState from : AllJobStates()) {
    for (const JobState to : AllJobStates()) {
      const std::string pair = std::string(JobStateName(from)) + " " + JobStateName(to);
      EXPECT_EQ(IsLegalTransition(from, to), LegalTransitions().count(pair) == 1) << pair;
    }
  }
}

TEST(JobStateMachineTest, WhatARestartMakesOfAStateIsLegal) {
  for (const JobState state : AllJobStates()) {
    const JobState after = StateAfterRestart(state);
    if (after == state) continue;
    EXPECT_TRUE(IsLegalTransition(state, after)) << JobStateName(state);
    EXPECT_EQ(StateAfterRestart(after), after) << JobStateName(state);
  }
  EXPECT_EQ(StateAfterRestart(JobState::kPreparing), JobState::kQueued);
  EXPECT_EQ(StateAfterRestart(JobState::kRunning), JobState::kQueued);
  EXPECT_EQ(StateAfterRestart(JobState::kPausing), JobState::kPaused);
  EXPECT_EQ(StateAfterRestart(JobState::kCancelling), JobState::kCancelled);
}

TEST(JobStateMachineTest, EndsAndActiveStates) {
  std::string ended, active;
  for (const JobState state : AllJobStates()) {
    if (IsEnded(state)) ended += std::string(JobStateName(state)) + " ";
    if (IsActive(state)) active += std::string(JobStateName(state)) + " ";
  }
  EXPECT_EQ(ended, "SUCCEEDED FAILED CANCELLED ");
  EXPECT_EQ(active, "PREPARING RUNNING PAUSING CANCELLING ");
}

TEST(JobStateMachineTest, NamesAreReadBack) {
  for (const JobState state : AllJobStates()) EXPECT_EQ(ParseJobState(JobStateName(state)), state);
  EXPECT_EQ(ParseJobState("running"), std::nullopt);
  EXPECT_EQ(ParseJobState(""), std::nullopt);
  EXPECT_EQ(ParseJobState("UNKNOWN"), std::nullopt);
}

}  // namespace
}  // namespace megatrain

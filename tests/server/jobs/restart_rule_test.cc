#include "server/jobs/restart_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

// The job after a death at `step` with the newest checkpoint at `checkpoint_step`.
Job Die(Job job, JobState state, int64_t step, int64_t checkpoint_step) {
  job.state = state;
  job.step = step;
  job.checkpoint_step = checkpoint_step;
  const std::optional<JobChange> change = ChangeAfterRestart(job);
  EXPECT_TRUE(change.has_value());
  EXPECT_TRUE(!change->to.has_value() || IsLegalTransition(job.state, *change->to));
  if (change->to.has_value()) job.state = *change->to;
  job.reason = change->reason;
  job.reason_text = change->text;
  change->edit(&job);
  return job;
}

TEST(RestartRuleTest, FiveDeathsInARowWithoutProgressFail) {
  Job job = TestJob(1);
  for (int death = 1; death <= 4; ++death) {
    job = Die(job, JobState::kPreparing, 0, 0);
    EXPECT_EQ(job.state, JobState::kQueued) << death;
    EXPECT_EQ(job.reason, JobReason::kProcessRestart);
    EXPECT_EQ(job.deaths, death);
  }
  job = Die(job, JobState::kPreparing, 0, 0);
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_EQ(job.reason, JobReason::kRepeatedDeaths);
  EXPECT_THAT(job.reason_text, HasSubstr("5 times in a row"));
}

TEST(RestartRuleTest, TheFirstDeathAtAStepIsProgress) {
  Job job = Die(TestJob(1), JobState::kRunning, 57, 0);
  EXPECT_EQ(job.deaths, 0);
  for (int death = 1; death <= 4; ++death) {
    job = Die(job, JobState::kRunning, 57, 0);
    EXPECT_EQ(job.deaths, death);
  }
  job = Die(job, JobState::kRunning, 57, 0);
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_THAT(job.reason_text, HasSubstr("step 57"));
  EXPECT_THAT(job.reason_text, HasSubstr("from the beginning"));
}

TEST(RestartRuleTest, GettingFurtherStartsTheCountAgain) {
  Job job = TestJob(1);
  for (int i = 0; i < 4; ++i) job = Die(job, JobState::kRunning, 0, 0);
  EXPECT_EQ(job.deaths, 4);
  job = Die(job, JobState::kRunning, 1, 0);
  EXPECT_EQ(job.deaths, 0);
  job = Die(job, JobState::kRunning, 1, 0);
  EXPECT_EQ(job.deaths, 1);
  // Further than at the death before, if not further than ever.
  job = Die(job, JobState::kRunning, 0, 0);
  EXPECT_EQ(job.deaths, 2);
  job = Die(job, JobState::kRunning, 1, 0);
  EXPECT_EQ(job.deaths, 0);
}

TEST(RestartRuleTest, ANewCheckpointIsProgressThoughTheStepIsNot) {
  Job job = Die(TestJob(1), JobState::kRunning, 99, 0);
  job = Die(job, JobState::kRunning, 55, 50);
  EXPECT_EQ(job.deaths, 0);
  EXPECT_EQ(job.step, 50) << "what it goes on from";
  job = Die(job, JobState::kPreparing, job.step, 50);
  EXPECT_EQ(job.deaths, 1);
}

TEST(RestartRuleTest, AHundredDeathsWithProgressAreNone) {
  Job job = TestJob(1);
  for (int i = 1; i <= 100; ++i) {
    job = Die(job, JobState::kRunning, i, 0);
    ASSERT_EQ(job.state, JobState::kQueued);
  }
}

TEST(RestartRuleTest, PausingAndCancellingAreDone) {
  Job job = TestJob(1);
  job.reason = JobReason::kDiskFull;
  job = Die(job, JobState::kPausing, 12, 10);
  EXPECT_EQ(job.state, JobState::kPaused);
  EXPECT_EQ(job.reason, JobReason::kDiskFull) << "the daemon's pause stays the daemon's";
  EXPECT_EQ(job.deaths, 0);
  EXPECT_THAT(job.reason_text, HasSubstr("from the checkpoint of step 10"));
  EXPECT_EQ(job.step, 10) << "what it goes on from";
  EXPECT_EQ(Die(job, JobState::kCancelling, 12, 10).state, JobState::kCancelled);
}

TEST(RestartRuleTest, HostMemoryIsLost) {
  Job job = TestJob(1);
  job.host_retained = job.release_host = true;
  job.reason = JobReason::kUserRequest;
  for (const JobState state : {JobState::kPaused, JobState::kQueued}) {
    const Job after = Die(job, state, 12, 10);
    EXPECT_EQ(after.state, state);
    EXPECT_FALSE(after.host_retained || after.release_host);
    EXPECT_THAT(after.reason_text, HasSubstr("with it the job's host memory"));
    EXPECT_EQ(after.step, 10);
  }
}

TEST(RestartRuleTest, OthersAreNotConcerned) {
  Job job = TestJob(1);
  for (const JobState state : {JobState::kQueued, JobState::kPaused, JobState::kSucceeded,
                               JobState::kFailed, JobState::kCancelled}) {
    job.state = state;
    EXPECT_FALSE(ChangeAfterRestart(job).has_value()) << JobStateName(state);
  }
}

TEST(RestartRuleTest, WithTheProcessGoesTheHostMemoryOfAJobThatIsActive) {
  Job job = TestJob(1);
  job.host_retained = true;
  for (const JobState state :
       {JobState::kPreparing, JobState::kRunning, JobState::kPausing, JobState::kCancelling}) {
    EXPECT_FALSE(Die(job, state, 12, 10).host_retained) << JobStateName(state);
  }
  job.deaths = kDeathsMax - 1;
  const Job failed = Die(job, JobState::kPreparing, 0, 0);
  EXPECT_EQ(failed.state, JobState::kFailed);
  EXPECT_FALSE(failed.host_retained);
}

TEST(RestartRuleTest, AJobIsCancelledForTheReasonThatItWasAskedFor) {
  Job job = TestJob(1);
  job.reason = JobReason::kUserRequest;
  const Job cancelled = Die(job, JobState::kCancelling, 12, 10);
  EXPECT_EQ(cancelled.state, JobState::kCancelled);
  EXPECT_EQ(cancelled.reason, JobReason::kUserRequest);
  EXPECT_EQ(cancelled.deaths, 0);
}

}  // namespace
}  // namespace megatrain

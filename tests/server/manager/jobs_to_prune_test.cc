// JobsToPrune names the ended jobs that the daemon deletes by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/manager/job_remover.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Ended `seconds` after the beginning.
Job Ended(int64_t number, int64_t uid, int64_t seconds) {
  Job job = TestJob(number);
  job.uid = uid;
  job.state = JobState::kSucceeded;
  job.ended = TestTime(seconds);
  return job;
}

std::vector<std::string> Pruned(const std::vector<Job>& jobs, int64_t keep) {
  std::vector<JobPtr> pointers;
  for (const Job& job : jobs) pointers.push_back(std::make_shared<const Job>(job));
  std::vector<std::string> ids;
  for (const JobPtr& job : JobsToPrune(pointers, keep)) ids.push_back(job->id);
  return ids;
}

TEST(JobsToPruneTest, OfEachUserThoseThatEndedLastAreKept) {
  const std::vector<Job> jobs = {Ended(1, 1, 50), Ended(2, 1, 10), Ended(3, 2, 5), Ended(4, 1, 30),
                                 Ended(5, 2, 60)};
  EXPECT_THAT(Pruned(jobs, 3), IsEmpty());
  EXPECT_THAT(Pruned(jobs, 2), ElementsAre("job2"));
  EXPECT_THAT(Pruned(jobs, 1), ElementsAre("job3", "job2", "job4"));
  EXPECT_THAT(Pruned({}, 1), IsEmpty());
}

TEST(JobsToPruneTest, WhatEndedAtTheSameTimeGoesByItsNumber) {
  EXPECT_THAT(Pruned({Ended(2, 1, 0), Ended(1, 1, 0), Ended(3, 1, 0)}, 1),
              ElementsAre("job1", "job2"));
}

TEST(JobsToPruneTest, WhatHasNotEndedStays) {
  for (const JobState state : AllJobStates()) {
    Job job = Ended(1, 1, 0);
    job.state = state;
    EXPECT_EQ(Pruned({job, Ended(2, 1, 1)}, 1).empty(), !IsEnded(state)) << JobStateName(state);
  }
}

TEST(JobsToPruneTest, CheckpointsThatTheDaemonKeepsAreTheUsersToThrowAway) {
  std::vector<Job> jobs = {Ended(1, 1, 0), Ended(2, 1, 1), Ended(3, 1, 2)};
  jobs[0].checkpoint_step = 10;
  EXPECT_THAT(Pruned(jobs, 1), ElementsAre("job2")) << "and do not count";
  // In a directory of the user's own they stay anyway.
  jobs[0].own_checkpoints = false;
  EXPECT_THAT(Pruned(jobs, 1), ElementsAre("job1", "job2"));
}

}  // namespace
}  // namespace megatrain

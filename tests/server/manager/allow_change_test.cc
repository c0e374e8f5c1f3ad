// The sections of a job that may differ from the checkpoint it goes on from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/manager/job_manager_fixture.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using S = JobState;

TEST_F(JobManagerTest, SectionsAreKeptInOrderAndOverARestart) {
  EXPECT_THAT(Submit(kAnna)->allow_change, IsEmpty());
  CreateJobOptions options = Options();
  options.allow_change = {"schedule", "optimizer", "schedule"};
  const JobPtr job = *manager_->Create(kAnna, options);
  EXPECT_THAT(job->allow_change, ElementsAre("optimizer", "schedule"));
  Open();
  EXPECT_THAT((*manager_->Get(kAnna, job->id))->allow_change, ElementsAre("optimizer", "schedule"));
}

TEST_F(JobManagerTest, SectionsThatNoRunMayChangeAreRefused) {
  for (const std::string section : {"model", "", "optimizer.learning_rate", "Optimizer"}) {
    CreateJobOptions options = Options();
    options.allow_change = {"optimizer", section};
    const absl::Status status = manager_->Create(kAnna, options).status();
    EXPECT_EQ(Refusal(status), "INVALID_ARGUMENT INVALID_FIELD");
    EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("\"" + section + "\""),
                                                                HasSubstr("optimizer, schedule")));
  }
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning, S::kPausing, S::kPaused});
  EXPECT_EQ(Refusal(manager_->Resume(kAnna, id, {"data"}).status()),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(StateOf(id), S::kPaused);
}

TEST_F(JobManagerTest, ResumingAddsSections) {
  CreateJobOptions options = Options("a-request");
  options.allow_change = {"schedule"};
  const std::string id = (*manager_->Create(kAnna, options))->id;
  Move(id, {S::kPreparing, S::kRunning, S::kPausing, S::kPaused});
  const JobPtr resumed = *manager_->Resume(kAnna, id, {"optimizer"});
  EXPECT_EQ(resumed->state, S::kQueued);
  EXPECT_THAT(resumed->allow_change, ElementsAre("optimizer", "schedule"));
  EXPECT_EQ(*manager_->Resume(kAnna, id, {"schedule"}), resumed) << "nothing new";
  // The request that made it is still the same.
  const auto again = manager_->Create(kAnna, options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->id, id);
}

TEST_F(JobManagerTest, AQueuedJobIsGivenSectionsAndARunningOneIsLeftAlone) {
  const std::string id = Submit(kAnna)->id;
  const JobPtr queued = *manager_->Resume(kAnna, id, {"optimizer"});
  EXPECT_EQ(queued->state, S::kQueued);
  EXPECT_THAT(queued->allow_change, ElementsAre("optimizer"));
  const std::vector<JobEvent> events = ledger_->table().Events(id, 2, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0].text, HasSubstr("may change optimizer"));
  Move(id, {S::kPreparing, S::kRunning});
  EXPECT_THAT((*manager_->Resume(kAnna, id, {"schedule"}))->allow_change, ElementsAre("optimizer"));
}

TEST_F(JobManagerTest, AnotherAllowChangeIsAnotherRequest) {
  Submit(kAnna, "one");
  CreateJobOptions options = Options("one");
  options.allow_change = {"optimizer"};
  EXPECT_EQ(Refusal(manager_->Create(kAnna, options).status()), "ALREADY_EXISTS REQUEST_ID_REUSED");
}

TEST_F(JobManagerTest, AWithdrawnPauseAddsSectionsToo) {
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning, S::kPausing});
  const auto running = manager_->Resume(kAnna, id, {"optimizer"});
  ASSERT_TRUE(running.ok()) << running.status();
  EXPECT_EQ((*running)->state, S::kRunning);
  EXPECT_THAT((*running)->allow_change, ElementsAre("optimizer"));
}

}  // namespace
}  // namespace megatrain

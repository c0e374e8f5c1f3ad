#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

class ListCommandTest : public ProgramTest {};

TEST_F(ListCommandTest, ShowsAJobUntilItHasEnded) {
  const std::string id = Create();
  const std::string line = absl::StrCat("jobs/", id, "\n");
  EXPECT_EQ(Run({"ls", "-q"}).out, line);
  for (const JobState state :
       {JobState::kPreparing, JobState::kRunning, JobState::kPausing, JobState::kPaused,
        JobState::kQueued, JobState::kPreparing, JobState::kCancelling}) {
    Move(id, state);
    EXPECT_EQ(Run({"ls", "-q"}).out, line) << JobStateName(state);
  }
  Move(id, JobState::kCancelled);
  EXPECT_EQ(Run({"ls", "-q"}).out, "");
}

TEST_F(ListCommandTest, AStartThatIsOverdueIsExpectedNow) {
  const std::string id = Create();
  QueuePlace place;
  place.position = 1;
  place.predicted_start = absl::Now() - absl::Hours(1);
  ledger_->SetQueuePlaces({{id, place}});
  EXPECT_THAT(Run({"ls"}).out, testing::HasSubstr("in 0s"));
}

TEST_F(ListCommandTest, AStartThatIsForeseenIsToldOnce) {
  const std::string id = Create();
  QueuePlace place;
  place.position = 1;
  place.predicted_start = absl::Now() + absl::Minutes(90);
  ledger_->SetQueuePlaces({{id, place}});
  EXPECT_THAT(Run({"ls"}).out, testing::AllOf(testing::HasSubstr("in 1h"),
                                              testing::HasSubstr("number 1 in the queue"),
                                              testing::Not(testing::HasSubstr("starts in"))));
}

TEST_F(ListCommandTest, AStartThatIsNotKnownIsNotTold) {
  const std::string id = Create();
  QueuePlace place;
  place.position = 1;
  ledger_->SetQueuePlaces({{id, place}});
  EXPECT_THAT(Run({"ls"}).out,
              testing::AllOf(testing::HasSubstr(id), testing::Not(testing::HasSubstr("in 0s"))));
}

TEST_F(ListCommandTest, TheTimeLeftIsThatOfAJobThatRuns) {
  const std::string id = Create();
  const auto prepared =
      ledger_->Change(id, [](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
        JobChange change;
        change.to = JobState::kPreparing;
        change.edit = [](Job* edited) { edited->total_steps = 100; };
        return change;
      });
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  Move(id, JobState::kRunning);
  AddStep(id, 20);
  // 80 steps of half a second.
  EXPECT_THAT(Run({"ls"}).out,
              testing::AllOf(testing::HasSubstr("20/100"), testing::HasSubstr("  40s  ")));
  Move(id, JobState::kPausing);
  Move(id, JobState::kPaused);
  EXPECT_THAT(Run({"ls"}).out, testing::AllOf(testing::HasSubstr("20/100"),
                                              testing::Not(testing::HasSubstr("  40s  "))));
}

TEST_F(ListCommandTest, WhatIsNotThereIsNotLookedForElsewhere) {
  EXPECT_EQ(Run({"ls", "--all"}).err, "megatrain: no jobs\n");
  EXPECT_EQ(Run({"ls", "--state", "RUNNING"}).err, "megatrain: no jobs\n");
  const Result refused = Run({"ls", "--state", "STATE_UNSPECIFIED"});
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, testing::HasSubstr("there is no state STATE_UNSPECIFIED"));
}

TEST_F(ListCommandTest, ListsMoreThanAPage) {
  for (int i = 0; i < 501; ++i) Create();
  EXPECT_EQ(Lines(Run({"ls", "-q"}).out).size(), 501u);
}

TEST_F(ListCommandTest, ListsMoreCheckpointsThanAPage) {
  const std::string id = Create();
  for (int step = 10; step < 70; ++step) {
    const std::string directory =
        absl::StrCat(directory_.path(), "/state/jobs/", id, "/checkpoints/step-000000", step);
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/manifest.json") << "{}";
  }
  EXPECT_EQ(Lines(Run({"checkpoints", id, "-q"}).out).size(), 60u);
}

}  // namespace
}  // namespace megatrain::client

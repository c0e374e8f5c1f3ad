#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

TEST_F(ListCommandTest, AStartThatIsNotKnownIsNotTold) {
  const std::string id = Create();
  QueuePlace place;
  place.position = 1;
  ledger_->SetQueuePlaces({{id, place}});
  EXPECT_THAT(Run({"ls"}).out,
              testing::AllOf(testing::HasSubstr(id), testing::Not(testing::HasSubstr("in 0s"))));
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

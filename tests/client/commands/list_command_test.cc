#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace megatrain::client

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
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

}  // namespace
}  // namespace megatrain::client

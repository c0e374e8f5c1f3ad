#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class WaitCommandTest : public ProgramTest {};

TEST_F(WaitCommandTest, PrintsTheEndedJobInTheFormThatIsAskedFor) {
  const std::string id = Create();
  MoveToRunning(id);
  Move(id, JobState::kSucceeded);
  EXPECT_EQ(Run({"wait", id, "-q"}).out, absl::StrCat("jobs/", id, "\n"));
  const nlohmann::json job = Json({"wait", id});
  EXPECT_EQ(job["state"], "SUCCEEDED");
  EXPECT_THAT(job["file"]["yaml"], HasSubstr("name: demo"));
  EXPECT_THAT(Run({"wait", id}).out, HasSubstr("demo has succeeded"));
}

}  // namespace
}  // namespace megatrain::client

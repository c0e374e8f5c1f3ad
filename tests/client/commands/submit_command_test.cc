#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SubmitCommandTest : public ProgramTest {};

TEST_F(SubmitCommandTest, ValidatingHasNoNameToPrintAndNothingToWatch) {
  const Result result = Run({"submit", JobFile(), "--validate-only", "--quiet"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(Run({"submit", JobFile(), "--validate-only"}).out,
            "demo is valid and fits; nothing was submitted\n");
  EXPECT_EQ(Run({"submit", JobFile(), "--validate-only", "--watch"}).code, kExitUsage);
  StopDaemon();
  const Result away = Run({"submit", JobFile(), "--validate-only"});
  EXPECT_EQ(away.code, kExitUnreachable);
  EXPECT_THAT(away.err, Not(HasSubstr("--request-id"))) << "nothing can be there twice";
  StartDaemon();
}

// A program that reads the records line by line would stumble over anything else.
TEST_F(SubmitCommandTest, AsRecordsTheJobOpensWhatIsWatched) {
  std::thread ending([this] {
    WaitUntil([this] { return server_->streams() >= 3; });
    const std::string id = ledger_->table().All().front()->id;
    MoveToRunning(id);
    Move(id, JobState::kSucceeded);
  });
  const Result result = Run({"submit", JobFile(), "--watch", "-o", "json"});
  ending.join();
  EXPECT_EQ(result.code, kExitDone) << result.err;
  const std::vector<std::string> lines = Lines(result.out);
  for (const std::string& line : lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.front(), HasSubstr("{\"job\":{\"name\":\"jobs/"));
}

}  // namespace
}  // namespace megatrain::client

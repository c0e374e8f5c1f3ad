#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

class ControlCommandsTest : public ProgramTest {};

TEST_F(ControlCommandsTest, APausedJobKeepsItsHostMemoryUnlessToldOtherwise) {
  const std::string id = Create();
  MoveToRunning(id);
  EXPECT_EQ(Run({"pause", id}).code, kExitDone);
  EXPECT_FALSE(ledger_->table().Find(id)->release_host);
  Move(id, JobState::kPaused);
  EXPECT_EQ(Run({"resume", id}).out, absl::StrCat("jobs/", id, " (demo) is QUEUED\n"));
  MoveToRunning(id);
  EXPECT_EQ(Run({"checkpoint", id, "-q"}).out, absl::StrCat("jobs/", id, "\n"));
  EXPECT_EQ(Run({"cancel", id}).out, absl::StrCat("jobs/", id, " (demo) is CANCELLING\n"));
}

TEST_F(ControlCommandsTest, SectionsThatMayChangeGoWithTheResume) {
  const std::string id = Create();
  MoveToRunning(id);
  Move(id, JobState::kPausing);
  Move(id, JobState::kPaused);
  const nlohmann::json job = Json({"resume", id, "--allow-change", "optimizer,schedule"});
  EXPECT_EQ(job["allow_change"], (nlohmann::json{"optimizer", "schedule"}));
}

}  // namespace
}  // namespace megatrain::client

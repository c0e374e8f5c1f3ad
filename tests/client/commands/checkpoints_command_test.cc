#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

class CheckpointsCommandTest : public ProgramTest {
 protected:
  // Returns the directory of a checkpoint that has so many bytes.
  std::string Save(const std::string& id, const std::string& step, size_t bytes) {
    const std::string directory =
        absl::StrCat(directory_.path(), "/state/jobs/", id, "/checkpoints/step-", step);
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/manifest.json") << std::string(bytes, ' ');
    return directory;
  }
};

TEST_F(CheckpointsCommandTest, TheNewestComesFirstWithItsSizeAndItsPlace) {
  const std::string id = Create();
  const std::string older = Save(id, "00000010", 1024), newer = Save(id, "00000200", 2048);
  const std::vector<std::string> lines = Lines(Run({"checkpoints", id}).out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], AllOf(StartsWith("STEP     SIZE  WRITTEN "), EndsWith("  DIRECTORY")));
  EXPECT_THAT(lines[1], AllOf(StartsWith(" 200  2.0 KiB  20"), EndsWith("  " + newer)));
  EXPECT_THAT(lines[2], AllOf(StartsWith("  10  1.0 KiB  20"), EndsWith("  " + older)));
  const nlohmann::json json = Json({"checkpoints", id});
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["name"], absl::StrCat("jobs/", id, "/checkpoints/200"));
  EXPECT_EQ(json[0]["bytes"], 2048);
  EXPECT_EQ(Run({"checkpoints", id, "-q"}).out,
            absl::StrCat("jobs/", id, "/checkpoints/200\njobs/", id, "/checkpoints/10\n"));
}

TEST_F(CheckpointsCommandTest, OnATerminalARowIsALine) {
  const std::string id = Create();
  Save(id, "00000010", 1024);
  is_terminal_ = true;
  const std::vector<std::string> lines = Lines(Run({"checkpoints", id}).out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], EndsWith("…"));
}

}  // namespace
}  // namespace megatrain::client

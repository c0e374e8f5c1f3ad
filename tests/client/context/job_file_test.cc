#include "client/context/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace megatrain::client {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const ServerAddress kLocal = {"unix:/run/m.sock", "/run/m.sock"};
const ServerAddress kRemote = {"node7:9463", ""};

class JobFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  std::string Write(const std::string& text) {
    std::ofstream(directory_ / "job.yaml") << text;
    return directory_ / "job.yaml";
  }
  const fs::path directory_ = fs::path(::testing::TempDir()) / "job_file_test";
};

TEST_F(JobFileTest, TextAndOverridesGoAsTheyAre) {
  const auto file = ReadJobFile(Write("name: x # é\n"), {"training.steps=5"}, kLocal);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->yaml(), "name: x # é\n");
  EXPECT_EQ(file->file_name(), "job.yaml");
  ASSERT_EQ(file->overrides_size(), 1);
  EXPECT_EQ(file->overrides(0), "training.steps=5");
}

TEST_F(JobFileTest, OnlyALocalServerGetsADirectory) {
  const std::string path = Write("name: x\n");
  EXPECT_EQ(ReadJobFile(path, {}, kLocal)->base_directory(), directory_.lexically_normal());
  EXPECT_EQ(ReadJobFile(path, {}, kRemote)->base_directory(), "");
}

TEST_F(JobFileTest, PathsStartWhereTheFileThatIsReadLies) {
  fs::create_directories(directory_ / "far/sub");
  fs::create_directory_symlink(directory_ / "far/sub", directory_ / "link");
  std::ofstream(directory_ / "far/job.yaml") << "name: far\n";
  const auto file = ReadJobFile(directory_ / "link/../job.yaml", {}, kLocal);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->yaml(), "name: far\n");
  EXPECT_EQ(file->base_directory(), fs::canonical(directory_ / "far"));
}

TEST_F(JobFileTest, PathsInStandardInputStartAtTheWorkingDirectory) {
  ASSERT_NE(std::freopen(Write("name: piped\n").c_str(), "r", stdin), nullptr);
  const auto file = ReadJobFile("-", {}, kLocal);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->yaml(), "name: piped\n");
  EXPECT_EQ(file->file_name(), "standard input");
  EXPECT_EQ(file->base_directory(), fs::current_path().lexically_normal().string());
}

TEST_F(JobFileTest, WhatCannotBeReadIsNamed) {
  const auto missing = ReadJobFile(directory_ / "nope.yaml", {}, kLocal);
  EXPECT_TRUE(absl::IsInvalidArgument(missing.status()));
  EXPECT_THAT(missing.status().message(), HasSubstr("nope.yaml: No such file"));
  const auto directory = ReadJobFile(directory_, {}, kLocal);
  EXPECT_TRUE(absl::IsInvalidArgument(directory.status()));
  const auto large = ReadJobFile(Write(std::string((1 << 20) + 1, '#')), {}, kLocal);
  EXPECT_TRUE(absl::IsInvalidArgument(large.status()));
  EXPECT_THAT(large.status().message(), HasSubstr("larger than 1 MiB"));
  EXPECT_TRUE(ReadJobFile(Write(std::string(1 << 20, '#')), {}, kLocal).ok());
}

// gRPC's own error names nothing.
TEST_F(JobFileTest, WhatIsNotUtf8IsNamed) {
  const std::string path = Write("name: x\n");
  const auto refused = [](const absl::Status& status, const std::string& what) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(status.message(), HasSubstr(" is not UTF-8 text"));
  };
  refused(ReadJobFile(path, {"training.steps=5", "name=\xff"}, kRemote).status(), "--set name=");
  refused(PathOnServer("/out\xff", kRemote).status(), "the path /out");
  const fs::path odd = directory_ / "odd\xff";
  fs::create_directory(odd);
  fs::copy_file(path, odd / "job.yaml");
  refused(ReadJobFile(odd / "job.yaml", {}, kLocal).status(), "the path ");
  EXPECT_TRUE(ReadJobFile(odd / "job.yaml", {}, kRemote).ok()) << "which is not told of it";
  fs::copy_file(path, directory_ / "job\xff.yaml");
  refused(ReadJobFile(directory_ / "job\xff.yaml", {}, kRemote).status(), "the job file's name");
  refused(ReadJobFile(Write("name: \xff\n"), {}, kRemote).status(), "job.yaml is not");
}

TEST_F(JobFileTest, PathsOnTheServer) {
  EXPECT_EQ(*PathOnServer("/a/../b", kRemote), "/b");
  EXPECT_EQ(*PathOnServer("out", kLocal), (fs::current_path() / "out").string());
  EXPECT_TRUE(absl::IsInvalidArgument(PathOnServer("", kLocal).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PathOnServer("", kRemote).status()));
  const auto refused = PathOnServer("out", kRemote);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_THAT(refused.status().message(), HasSubstr("node7:9463 is another machine"));
}

}  // namespace
}  // namespace megatrain::client

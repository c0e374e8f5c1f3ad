// The paths of a submitted job, by the files that its submitter has.
#include "server/manager/job_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/error_reason.h"
#include "server/files/rooted_file_system.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

class JobPathsTest : public ::testing::Test {
 protected:
  JobPathsTest() {
    fs::create_directories(directory_ / "root/model");
    std::ofstream(directory_ / "root/train.jsonl") << "{}";
    std::ofstream(directory_ / "outside.jsonl") << "{}";
    fs::create_symlink("../outside.jsonl", directory_ / "root/link.jsonl");
    fs::create_symlink("..", directory_ / "root/up");
    files_ = std::make_unique<RootedFileSystem>(
        RootedFileSystem::Roots{*RootDirectory::Open(directory_ / "root")}, std::nullopt);
    spec_.model.path = directory_ / "root/model";
    spec_.data.train = {{directory_ / "root/train.jsonl", DataFormat::kText, ""}};
    spec_.checkpoint.directory = own_ + "/checkpoints";
  }

  absl::Status Check() { return CheckPaths(spec_, own_, files_.get()); }
  void ExpectRefused(const std::string& key, const std::string& path, const std::string& reason) {
    const absl::Status status = Check();
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(key + ": "), HasSubstr(path)));
    ASSERT_TRUE(ReasonOf(status).has_value()) << status;
    EXPECT_EQ(ReasonOf(status)->reason, reason) << status;
  }

  TestDirectory directory_;
  const std::string own_ = directory_ / "state/jobs/j1";
  std::unique_ptr<RootedFileSystem> files_;
  JobSpec spec_;
};

TEST_F(JobPathsTest, TakesWhatIsBeneathTheRoots) {
  EXPECT_TRUE(Check().ok()) << Check();
  spec_.data.eval = spec_.data.train;
  spec_.data.cache_directory = directory_ / "root/cache/new";
  spec_.checkpoint.directory = directory_ / "root/checkpoints/new";
  spec_.output.directory = directory_ / "root/out/new";
  spec_.report.tensorboard = directory_ / "root/board/new";
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(JobPathsTest, NamesTheKeyOfWhatIsOutside) {
  const JobSpec sound = spec_;
  for (const char* name : {"outside.jsonl", "none.jsonl", "root/link.jsonl", "root/up/none.jsonl",
                           "root/../outside.jsonl"}) {
    const std::string path = directory_ / name;
    spec_ = sound;
    spec_.model.path = path;
    ExpectRefused("model.path", path, "NOT_PERMITTED");
    spec_ = sound;
    spec_.data.train.push_back({path, DataFormat::kText, ""});
    ExpectRefused("data.train", path, "NOT_PERMITTED");
    spec_ = sound;
    spec_.data.eval = {{path, DataFormat::kText, ""}};
    ExpectRefused("data.eval", path, "NOT_PERMITTED");
    spec_ = sound;
    spec_.data.cache_directory = path;
    ExpectRefused("data.cache_directory", path, "NOT_PERMITTED");
    spec_ = sound;
    spec_.checkpoint.directory = path;
    ExpectRefused("checkpoint.directory", path, "NOT_PERMITTED");
  }
  spec_ = sound;
  spec_.output.directory = directory_ / "root/up/out";
  ExpectRefused("output.directory", "up", "NOT_PERMITTED");
  spec_ = sound;
  spec_.report.tensorboard = directory_ / "root/up/board";
  ExpectRefused("report.tensorboard", "up", "NOT_PERMITTED");
  // What another job's directory is called changes nothing.
  spec_ = sound;
  spec_.checkpoint.directory = own_ + "2/checkpoints";
  ExpectRefused("checkpoint.directory", own_, "NOT_PERMITTED");
}

TEST_F(JobPathsTest, NamesTheKeyOfWhatIsNotThereOrNotWhatItMustBe) {
  const JobSpec sound = spec_;
  spec_.model.path = directory_ / "root/none";
  ExpectRefused("model.path", "root/none", "INVALID_JOB_FILE");
  spec_.model.path = directory_ / "root/train.jsonl";
  ExpectRefused("model.path", "is not a directory", "INVALID_JOB_FILE");
  spec_ = sound;
  spec_.data.train[0].path = directory_ / "root/none.jsonl";
  ExpectRefused("data.train", "none.jsonl", "INVALID_JOB_FILE");
  spec_.data.train[0].path = directory_ / "root/*.none";
  ExpectRefused("data.train", "no file matches this pattern", "INVALID_JOB_FILE");
  spec_ = sound;
  spec_.checkpoint.directory = directory_ / "root/train.jsonl";
  ExpectRefused("checkpoint.directory", "is not a directory", "INVALID_JOB_FILE");
  spec_ = sound;
  spec_.output.directory = directory_ / "root/train.jsonl";
  ExpectRefused("output.directory", "is not a directory", "INVALID_JOB_FILE");
  spec_.output.directory = directory_ / "root/out";
  spec_.report.tensorboard = directory_ / "root/out/board";
  ExpectRefused("output.directory", "report.tensorboard", "INVALID_JOB_FILE");
}

TEST_F(JobPathsTest, OnlyCheckpointsAreWrittenIntoAJobsOwnDirectory) {
  const std::string other = directory_ / "state/jobs/j2/checkpoints";
  for (const auto& [key, path] : {std::pair("data.cache_directory", &spec_.data.cache_directory),
                                  std::pair("report.tensorboard", &spec_.report.tensorboard),
                                  std::pair("output.directory", &spec_.output.directory)}) {
    *path = other + "/x";
    ExpectRefused(key, "lies in the directory of job j2", "INVALID_JOB_FILE");
    path->clear();
  }
  EXPECT_EQ(Check(), absl::OkStatus());
}

}  // namespace
}  // namespace megatrain

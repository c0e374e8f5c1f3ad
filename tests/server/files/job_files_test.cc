// The roots of a configuration, the own directory of a job, the account that submitted it.
#include "server/files/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "server/files/file_identity.h"
#include "server/files/own_directory.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

class JobFilesTest : public ::testing::Test {
 protected:
  JobFilesTest() {
    ::chmod(directory_.c_str(), 0711);
    fs::create_directory(state_);
    fs::create_directory(root_);
    std::ofstream(root_ + "/file") << "content";
    std::ofstream(state_ + "/store") << "secret";
  }

  static struct stat StatOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info;
  }

  const int64_t own_uid_ = ::geteuid();
  const TestDirectory own_{TestDirectory::Place::kShort};
  const std::string directory_ = own_.path();
  const std::string state_ = directory_ + "/state", root_ = directory_ + "/root";
};

TEST_F(JobFilesTest, AJobHasTheRootsAndItsOwnDirectory) {
  const auto jobs = JobFiles::Open(state_, {root_});
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  const std::string own = OwnCheckpointDirectory(state_, "j1");
  const auto before = (*jobs)->OpenFor(own_uid_, "j1");
  ASSERT_TRUE(before.ok());
  EXPECT_FALSE((*before)->FileExists(own));
  const auto files = (*jobs)->PrepareForRun(own_uid_, "j1");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE((*files)->CreateDirectories(own + "/data").ok());
  EXPECT_TRUE(WriteFileSynced(files->get(), own + "/data/x", "x").ok());
  EXPECT_TRUE((*files)->OpenForReading(root_ + "/file").ok());
  for (const std::string& path :
       {state_ + "/store", state_ + "/jobs/j1/log", state_ + "/jobs/j2/checkpoints/x",
        own + "/../log", directory_ + "/x"}) {
    EXPECT_TRUE(absl::IsPermissionDenied((*files)->NewWritableFile(path).status())) << path;
  }
  EXPECT_TRUE((*(*jobs)->OpenFor(own_uid_, "j1"))->FileExists(own + "/data/x"));
}

// So that a job can go on from the checkpoints of one that has failed.
TEST_F(JobFilesTest, AJobHasTheOwnDirectoriesOfItsSubmittersOtherJobs) {
  const auto jobs = JobFiles::Open(state_, {root_});
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_TRUE((*jobs)->PrepareForRun(own_uid_, "j1").ok());
  const std::string own = OwnCheckpointDirectory(state_, "j1");
  for (const std::string job : {"", "j2"}) {
    const auto files = (*jobs)->OpenFor(own_uid_, job);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_TRUE(WriteFileSynced(files->get(), own + "/x", "x").ok());
    EXPECT_TRUE((*files)->CheckWritable(own).ok());
    EXPECT_TRUE((*files)->CreateDirectories(own + "/step.tmp").ok());
    EXPECT_TRUE((*files)->Rename(own + "/step.tmp", own + "/step").ok());
    EXPECT_TRUE((*files)->RemoveTree(own + "/step").ok());
    EXPECT_TRUE((*files)->TryLock(own + "/lock").ok());
    EXPECT_TRUE(absl::IsInvalidArgument((*files)->RemoveTree(own))) << "it is a root";
    for (const std::string& path :
         {state_ + "/jobs/j1/log", own + "/../log", state_ + "/jobs/none/checkpoints/x",
          state_ + "/jobs/../jobs/j1/checkpoints/x", own + "2/x"}) {
      EXPECT_TRUE(absl::IsPermissionDenied((*files)->NewWritableFile(path).status())) << path;
    }
  }
  if (!MissingCapabilities().empty()) GTEST_SKIP() << "needs root: " << MissingCapabilities();
  ASSERT_EQ(::chown(own.c_str(), 12345, 12345), 0);
  EXPECT_FALSE((*(*jobs)->OpenFor(own_uid_, "j2"))->FileExists(own + "/x")) << "another account's";
}

TEST_F(JobFilesTest, PathsInOwnDirectoriesNameTheirJobs) {
  EXPECT_EQ(JobOfOwnDirectory("/s", "/s/jobs/j1/checkpoints"), "j1");
  EXPECT_EQ(JobOfOwnDirectory("/s", "/s/jobs/j1/checkpoints/a/b"), "j1");
  for (const char* const path : {"/s/jobs/j1", "/s/jobs/j1/checkpoints2", "/s/jobs/j1/log",
                                 "/s/jobs/../checkpoints", "/s/jobs//checkpoints", "/s/jobs", ""}) {
    EXPECT_EQ(JobOfOwnDirectory("/s", path), "") << path;
  }
}

TEST_F(JobFilesTest, TheWayToAJobsDirectoryIsPassedThroughNotRead) {
  const mode_t before = ::umask(0077);
  const auto jobs = JobFiles::Open(state_, {root_});
  ::chmod(state_.c_str(), 0700);
  for (int round = 0; round < 2; ++round) ASSERT_TRUE((*jobs)->PrepareForRun(own_uid_, "j1").ok());
  ::umask(before);
  EXPECT_EQ(StatOf(state_).st_mode & 0777, 0700u) << "nobody else has a job there";
  EXPECT_EQ(StatOf(state_ + "/jobs").st_mode & 0777, 0711u);
  EXPECT_EQ(StatOf(state_ + "/jobs/j1").st_mode & 0777, 0711u);
  EXPECT_EQ(StatOf(state_ + "/jobs/j1/checkpoints").st_mode & 0777, 0750u);
}

TEST_F(JobFilesTest, WithoutRootsTheUsersRightsDecide) {
  const auto jobs = JobFiles::Open(state_, {});
  ASSERT_TRUE(jobs.ok());
  fs::create_symlink(root_ + "/file", directory_ + "/link");
  const auto files = (*jobs)->OpenFor(own_uid_, "");
  EXPECT_EQ(*ReadWholeFile(files->get(), directory_ + "/link", 100), "content");
  EXPECT_TRUE(WriteFileSynced(files->get(), directory_ + "/new", "x").ok());
  EXPECT_EQ(StatOf(directory_ + "/new").st_mode & 0777, 0640u);
}

TEST_F(JobFilesTest, RootsMustBeDirectoriesThatAreThere) {
  for (const std::string& path : {directory_ + "/none", root_ + "/file"}) {
    const absl::Status status = JobFiles::Open(state_, {root_, path}).status();
    // What is not there may be mounted yet.
    EXPECT_EQ(absl::IsNotFound(status), path != root_ + "/file") << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("roots: "), HasSubstr(path)));
  }
}

TEST_F(JobFilesTest, AnAccountThatIsGoneIsSaid) {
  if (!MissingCapabilities().empty()) GTEST_SKIP() << "needs root";
  const auto jobs = JobFiles::Open(state_, {root_});
  const absl::Status status = (*jobs)->PrepareForRun(3999999999, "j1").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no account of user id 3999999999"));
}

TEST_F(JobFilesTest, OthersNeedTheRightToActForThem) {
  const auto jobs = JobFiles::Open(state_, {root_});
  absl::Status status;
  // A thread without capabilities, as a daemon that an ordinary user started.
  std::thread([&] {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    ASSERT_EQ(::syscall(SYS_capset, &header, none), 0);
    EXPECT_TRUE((*jobs)->OpenFor(own_uid_, "").ok());
    status = (*jobs)->OpenFor(own_uid_ + 1, "").status();
  }).join();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CAP_SETUID, CAP_SETGID, CAP_CHOWN"));
}

TEST_F(JobFilesTest, ASubmitterOwnsItsJobsDirectory) {
  if (!MissingCapabilities().empty()) GTEST_SKIP() << "needs root: " << MissingCapabilities();
  const passwd* const nobody = ::getpwnam("nobody");
  if (nobody == nullptr) GTEST_SKIP() << "there is no account nobody";
  ::chmod(state_.c_str(), 0700);
  ::chmod((state_ + "/store").c_str(), 0600);
  const auto jobs = JobFiles::Open(state_, {root_});
  const std::string own = OwnCheckpointDirectory(state_, "j1");
  for (int round = 0; round < 2; ++round) {
    const auto files = (*jobs)->PrepareForRun(nobody->pw_uid, "j1");
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_TRUE((*files)->CreateDirectories(own + "/data").ok());
    EXPECT_TRUE(WriteFileSynced(files->get(), own + "/file", "x").ok());
    EXPECT_FALSE((*files)->NewWritableFile(root_ + "/new").ok());
  }
  for (const char* name : {"", "/data", "/file"}) {
    EXPECT_EQ(StatOf(own + name).st_uid, nobody->pw_uid) << name;
  }
  EXPECT_EQ(StatOf(own + "/file").st_mode & 0777, 0640u);
  EXPECT_EQ(StatOf(state_).st_mode & 0777, 0711u);
  EXPECT_EQ(StatOf(state_ + "/jobs/j1").st_uid, own_uid_);
  // It reaches its checkpoints by itself, and nothing else there.
  const FileIdentity identity = *LookUpIdentity(nobody->pw_uid);
  const ScopedIdentity as(&identity);
  ASSERT_TRUE(as.status().ok());
  EXPECT_EQ(::access((own + "/file").c_str(), F_OK), 0);
  std::ifstream file(own + "/file");
  EXPECT_TRUE(file.good());
  EXPECT_FALSE(std::ifstream(state_ + "/store").good());
}

TEST_F(JobFilesTest, WhatASubmitterMakesOfItsDirectoryStays) {
  if (!MissingCapabilities().empty()) GTEST_SKIP() << "needs root: " << MissingCapabilities();
  const passwd* const nobody = ::getpwnam("nobody");
  if (nobody == nullptr) GTEST_SKIP() << "there is no account nobody";
  const uid_t uid = nobody->pw_uid;
  const gid_t gid = nobody->pw_gid;
  const auto jobs = JobFiles::Open(state_, {root_});
  ASSERT_TRUE((*jobs)->PrepareForRun(uid, "j1").ok());
  const std::string own = OwnCheckpointDirectory(state_, "j1");
  EXPECT_EQ(StatOf(own).st_uid, uid);
  EXPECT_EQ(StatOf(own).st_gid, gid);
  EXPECT_EQ(StatOf(own).st_mode & 0777, 0750u);
  // It shuts its group out.
  ASSERT_EQ(::chmod(own.c_str(), 0700), 0);
  ASSERT_TRUE((*jobs)->PrepareForRun(uid, "j1").ok());
  EXPECT_EQ(StatOf(own).st_mode & 0777, 0700u);
}

}  // namespace
}  // namespace megatrain

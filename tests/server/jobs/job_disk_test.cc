#include "server/jobs/job_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/files/own_directory.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void Write(const std::string& path, size_t bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << std::string(bytes, 'x');
}

Job OfUser(int64_t number, int64_t uid) {
  Job job = TestJob(number);
  job.uid = uid;
  job.checkpoint_bytes = 100;
  JobSpec spec;
  spec.checkpoint.keep = 2;
  job.spec = std::make_shared<const JobSpec>(spec);
  return job;
}

TEST(JobDiskTest, ADirectorysBytesAreThoseOfItsFiles) {
  const TestDirectory directory;
  EXPECT_EQ(DirectoryBytes(directory / "missing"), 0);
  EXPECT_EQ(DirectoryBytes(directory / ""), 0);
  Write(directory / "a/b/c", 10);
  Write(directory / "a/d", 5);
  Write(directory / "e", 0);
  fs::create_symlink(directory / "a", directory / "a/b/loop");
  fs::create_symlink(directory / "a/d", directory / "link");
  EXPECT_EQ(DirectoryBytes(directory.path()), 15);
}

TEST(JobDiskTest, EachUsersJobsAreSummed) {
  const TestDirectory directory;
  JobDisk disk(directory.path(), 1000);
  const Job first = OfUser(1, 1), second = OfUser(2, 1), other = OfUser(3, 2);
  Write(directory / "jobs/job1/x", 100);
  Write(directory / "jobs/job2/x", 20);
  Write(directory / "jobs/job3/x", 3);
  for (const Job& job : {first, second, other, first}) disk.Measure(job);
  EXPECT_EQ(disk.UserBytes(1), 120);
  EXPECT_EQ(disk.UserBytes(2), 3);
  EXPECT_EQ(disk.UserBytes(3), 0);
  Write(directory / "jobs/job1/x", 60);
  EXPECT_EQ(disk.UserBytes(1), 120) << "as last measured";
  disk.Measure(first);
  EXPECT_EQ(disk.UserBytes(1), 80);
  disk.Forget("job1");
  disk.Forget("job1");
  EXPECT_EQ(disk.UserBytes(1), 20);
}

TEST(JobDiskTest, WhatLiveJobsWillTake) {
  const TestDirectory directory;
  JobDisk disk(directory.path(), 1000);
  JobTable table;
  Job first = OfUser(1, 1), second = OfUser(2, 1), elsewhere = OfUser(3, 1), ended = OfUser(4, 1),
      other = OfUser(5, 2);
  elsewhere.own_checkpoints = false;
  ended.state = JobState::kFailed;
  for (const Job& job : {first, second, elsewhere, ended, other}) table.Put(job, {});
  EXPECT_EQ(OwnCheckpointBytes(first), 300) << "two, and one being written";
  EXPECT_EQ(OwnCheckpointBytes(elsewhere), 0);
  EXPECT_EQ(disk.UserReservedBytes(1, table), 600);
  Write(directory / "jobs/job1/x", 120);
  Write(directory / "jobs/job2/x", 500);
  disk.Measure(first);
  disk.Measure(second);
  EXPECT_EQ(disk.UserReservedBytes(1, table), 180);
}

TEST(JobDiskTest, TheNextCheckpointDecides) {
  const TestDirectory directory;
  JobDisk disk(directory.path(), 1000);
  Job job = OfUser(1, 1);
  Write(directory / "jobs/job1/x", 900);
  disk.Measure(job);
  EXPECT_EQ(disk.OverLimit(job), "");
  Write(directory / "jobs/job1/y", 1);
  disk.Measure(job);
  EXPECT_THAT(disk.OverLimit(job), HasSubstr("hold 901 bytes"));
  EXPECT_THAT(disk.OverLimit(job), HasSubstr("a user may have 1000 bytes (limits.disk_per_user)"));
  job.own_checkpoints = false;
  EXPECT_EQ(disk.OverLimit(job), "");
  JobDisk unlimited(directory.path(), 0);
  unlimited.Measure(job);
  EXPECT_EQ(unlimited.UserBytes(1), 0) << "nobody looks";
}

}  // namespace
}  // namespace megatrain

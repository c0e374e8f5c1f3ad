#include "server/manager/job_disk.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "engine/base/descriptor.h"
#include "engine/base/file.h"
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

TEST(JobDiskTest, EachUsersJobsAreSummed) {
  const TestDirectory directory;
  const SharedUserLimits limits({.disk_bytes = 1000});
  JobDisk disk(directory.path(), &limits);
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

TEST(JobDiskTest, AMeasurementThatEndsAfterItsJobIsForgottenCountsNothing) {
  const TestDirectory directory;
  const SharedUserLimits limits({.disk_bytes = 1000});
  JobDisk disk(directory.path(), &limits);
  const Job job = OfUser(1, 1);
  const std::string place = directory / "jobs/job1", removed = directory / "removed";
  for (int i = 0; i < 300; ++i) Write(place + "/" + std::to_string(i), 1);
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> begins{false};
    std::thread measuring([&] {
      begins = true;
      disk.Measure(job);
    });
    while (!begins) std::this_thread::yield();
    fs::rename(place, removed);
    disk.Forget(job.id);
    measuring.join();
    EXPECT_EQ(disk.UserBytes(1), 0) << round;
    fs::rename(removed, place);
  }
}

TEST(JobDiskTest, WhatLiveJobsWillTake) {
  const TestDirectory directory;
  const SharedUserLimits limits({.disk_bytes = 1000});
  JobDisk disk(directory.path(), &limits);
  JobTable table;
  Job first = OfUser(1, 1), second = OfUser(2, 1), elsewhere = OfUser(3, 1), ended = OfUser(4, 1),
      other = OfUser(5, 2);
  elsewhere.own_checkpoints = false;
  ended.state = JobState::kFailed;
  for (const Job& job : {first, second, elsewhere, ended, other}) table.Put(job, {});
  EXPECT_EQ(OwnCheckpointBytes(first), 300) << "two, and one being written";
  JobSpec spec = *first.spec;
  spec.training.keep_best = true;
  Job keeping = first;
  keeping.spec = std::make_shared<const JobSpec>(spec);
  EXPECT_EQ(OwnCheckpointBytes(keeping), 400) << "and the best";
  EXPECT_EQ(OwnCheckpointBytes(elsewhere), 0);
  Job goes_on = elsewhere;
  goes_on.checkpoints_with = first.id;
  EXPECT_EQ(OwnCheckpointBytes(goes_on), 300) << "in the directory of another job";
  EXPECT_EQ(disk.UserReservedBytes(1, table), 600);
  Write(directory / "jobs/job1/x", 120);
  Write(directory / "jobs/job2/x", 500);
  disk.Measure(first);
  disk.Measure(second);
  EXPECT_EQ(disk.UserReservedBytes(1, table), 180);
}

// So many checkpoints that no number counts their bytes escape no limit.
TEST(JobDiskTest, MoreCheckpointsThanANumberCountsAreTheLargestNumber) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const TestDirectory directory;
  const SharedUserLimits limits({.disk_bytes = 1000});
  const JobDisk disk(directory.path(), &limits);
  JobTable table;
  int64_t number = 0;
  for (const int64_t keep : {kMax, kMax - 1, kMax / 100}) {
    Job job = OfUser(++number, 1);
    JobSpec spec;
    spec.checkpoint.keep = keep;
    job.spec = std::make_shared<const JobSpec>(spec);
    EXPECT_EQ(OwnCheckpointBytes(job), kMax) << keep;
    table.Put(job, {});
    EXPECT_EQ(disk.UserReservedBytes(1, table), kMax) << number;
  }
}

TEST(JobDiskTest, TheNextCheckpointDecides) {
  const TestDirectory directory;
  const SharedUserLimits limits({.disk_bytes = 1000});
  JobDisk disk(directory.path(), &limits);
  Job job = OfUser(1, 1);
  Write(directory / "jobs/job1/x", 900);
  disk.Measure(job);
  EXPECT_EQ(disk.WhyOverLimit(job), "");
  Write(directory / "jobs/job1/y", 1);
  disk.Measure(job);
  EXPECT_THAT(disk.WhyOverLimit(job), HasSubstr("hold 901 bytes"));
  EXPECT_THAT(disk.WhyOverLimit(job),
              HasSubstr("a user may have 1000 bytes (limits.disk_per_user)"));
  job.own_checkpoints = false;
  EXPECT_EQ(disk.WhyOverLimit(job), "");
  const SharedUserLimits none{UserLimits()};
  JobDisk unlimited(directory.path(), &none);
  unlimited.Measure(job);
  EXPECT_EQ(unlimited.UserBytes(1), 0) << "nobody looks";
}

// What lies too deep to be measured is no place to hide files in.
TEST(JobDiskTest, AJobWithDirectoriesTooDeepCountsAsAllThatAUserMayHave) {
  const TestDirectory directory;
  const SharedUserLimits limits({.disk_bytes = 1000});
  JobDisk disk(directory.path(), &limits);
  const Job deep = OfUser(1, 1), other = OfUser(2, 1);
  Write(directory / "jobs/job1/checkpoints/x", 10);
  Write(directory / "jobs/job2/x", 3);
  const std::string top = directory / "jobs/job1/checkpoints";
  Descriptor at(::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int level = 0; level < 2000; ++level) {
    ASSERT_EQ(::mkdirat(at.get(), "d", 0755), 0);
    at = Descriptor(::openat(at.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  for (const Job& job : {deep, other, deep}) disk.Measure(job);
  EXPECT_EQ(disk.UserBytes(1), 1003);
  EXPECT_THAT(disk.WhyOverLimit(other), HasSubstr("job job1 holds directories 32 levels deep or "
                                                  "more, or closed to their owner, which are not "
                                                  "measured, and counts as all of "
                                                  "limits.disk_per_user"));
  EXPECT_EQ(disk.NoteOnUnmeasured(2), "") << "another user's job is not named";
  ASSERT_TRUE(PosixFileSystem()->RemoveTree(top + "/d").ok());
  disk.Measure(deep);
  EXPECT_EQ(disk.UserBytes(1), 13);
  EXPECT_EQ(disk.NoteOnUnmeasured(1), "");
}

}  // namespace
}  // namespace megatrain

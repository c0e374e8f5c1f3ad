#include "server/scheduler/disk_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

TEST(DiskWaitsTest, WaitsUntilThereIsRoom) {
  int64_t free = 99;
  std::string asked;
  int64_t asked_for = -1;
  DiskWaits waits([&](const Job& job, const std::string& directory) -> absl::StatusOr<int64_t> {
    asked = directory;
    asked_for = job.uid;
    return free;
  });
  const Job job = TestJob(1);
  EXPECT_FALSE(waits.Waits(job.id));
  EXPECT_TRUE(waits.LookForRoom(job, TestTime(0))) << "who does not wait";
  EXPECT_EQ(waits.NextLook(), std::nullopt);
  EXPECT_EQ(waits.Text(job.id), "");
  waits.Add(job, {{"/big", 100}}, TestTime(0));
  EXPECT_EQ(waits.Text(job.id), "the disk of /big is full: 100 bytes are needed");
  EXPECT_TRUE(waits.Waits(job.id));
  EXPECT_EQ(waits.NextLook(), TestTime(10));
  EXPECT_FALSE(waits.LookForRoom(job, TestTime(9)));
  EXPECT_EQ(asked, "") << "not before its time";
  EXPECT_FALSE(waits.LookForRoom(job, TestTime(10)));
  EXPECT_EQ(asked, "/big");
  EXPECT_EQ(asked_for, job.uid);
  EXPECT_THAT(waits.Text(job.id), HasSubstr("the disk of /big is full: 100 bytes are needed, 99"));
  free = 100;
  EXPECT_FALSE(waits.LookForRoom(job, TestTime(19)));
  EXPECT_TRUE(waits.LookForRoom(job, TestTime(20)));
  EXPECT_TRUE(waits.Waits(job.id)) << "whether it goes on is for others to say";
  EXPECT_FALSE(waits.LookForRoom(job, TestTime(29)));
  EXPECT_TRUE(waits.LookForRoom(job, TestTime(30)));
  waits.EndWait(job.id);
  EXPECT_FALSE(waits.Waits(job.id));
  EXPECT_TRUE(waits.LookForRoom(job, TestTime(31)));
}

TEST(DiskWaitsTest, EveryNeedMustBeMet) {
  std::map<std::string, int64_t> free = {{"/a", 10}, {"/b", 1}};
  DiskWaits waits([&](const Job&, const std::string& directory) -> absl::StatusOr<int64_t> {
    return free.at(directory);
  });
  const Job job = TestJob(1);
  waits.Add(job, {{"/a", 10}, {"/b", 10}}, TestTime(0));
  EXPECT_FALSE(waits.LookForRoom(job, TestTime(10)));
  EXPECT_THAT(waits.Text(job.id), HasSubstr("/b"));
  free["/b"] = 10;
  EXPECT_TRUE(waits.LookForRoom(job, TestTime(20)));
}

TEST(DiskWaitsTest, WithoutProgressTheWaitGrows) {
  DiskWaits waits([](const Job&, const std::string&) -> absl::StatusOr<int64_t> { return 1000; });
  Job job = TestJob(1);
  absl::Time now = TestTime(0);
  absl::Duration longest;
  for (int i = 0; i < 12; ++i) {
    waits.Add(job, {{"/a", 10}}, now);
    waits.Add(job, {{"/a", 10}}, now + absl::Seconds(1));  // once is enough
    const absl::Duration wait = *waits.NextLook() - now;
    EXPECT_EQ(wait, std::min(kDiskWaitMin * (1 << i), kDiskWaitMax));
    longest = wait;
    now += wait;
    EXPECT_TRUE(waits.LookForRoom(job, now));
    waits.EndWait(job.id);
  }
  EXPECT_EQ(longest, kDiskWaitMax);
  job.step = 1;
  waits.Add(job, {{"/a", 10}}, now);
  EXPECT_EQ(*waits.NextLook() - now, kDiskWaitMin) << "a step further";
  waits.Forget(job.id);
  EXPECT_EQ(waits.NextLook(), std::nullopt);
  waits.Add(job, {{"/a", 10}}, now);
  EXPECT_EQ(*waits.NextLook() - now, kDiskWaitMin) << "nothing is remembered";
}

TEST(DiskWaitsTest, TheNextLookIsThatOfTheJobWhoseTimeComesFirst) {
  DiskWaits waits([](const Job&, const std::string&) -> absl::StatusOr<int64_t> { return 0; });
  const Job first = TestJob(1), second = TestJob(2);
  waits.Add(first, {{"/a", 10}}, TestTime(5));
  waits.Add(second, {{"/a", 10}}, TestTime(0));
  EXPECT_EQ(waits.NextLook(), TestTime(10));
  EXPECT_FALSE(waits.LookForRoom(second, TestTime(10)));
  EXPECT_EQ(waits.NextLook(), TestTime(15));
  waits.EndWait(first.id);
  EXPECT_EQ(waits.NextLook(), TestTime(20));
}

TEST(DiskWaitsTest, AClockThatIsSetBackDoesNotPutOffTheNextLook) {
  int64_t free = 0;
  DiskWaits waits([&](const Job&, const std::string&) -> absl::StatusOr<int64_t> { return free; });
  const Job job = TestJob(1);
  waits.Add(job, {{"/a", 10}}, TestTime(1000));
  EXPECT_FALSE(waits.LookForRoom(job, TestTime(0)));
  EXPECT_EQ(waits.NextLook(), TestTime(10));
  free = 10;
  EXPECT_FALSE(waits.LookForRoom(job, TestTime(9)));
  EXPECT_TRUE(waits.LookForRoom(job, TestTime(10)));
}

TEST(DiskWaitsTest, ADirectoryThatCannotBeAskedIsTried) {
  DiskWaits waits([](const Job&, const std::string&) -> absl::StatusOr<int64_t> {
    return absl::NotFoundError("gone");
  });
  const Job job = TestJob(1);
  waits.Add(job, {{"/a", 10}}, TestTime(0));
  EXPECT_TRUE(waits.LookForRoom(job, TestTime(10)));
}

TEST(DiskWaitsTest, NeedsOfAJob) {
  Job job = TestJob(1);
  EXPECT_TRUE(DiskNeedsOf(job).empty());
  JobSpec spec;
  spec.checkpoint.directory = "/c";
  job.spec = std::make_shared<const JobSpec>(spec);
  EXPECT_EQ(DiskNeedsOf(job).size(), 1u) << "it names no other";
  spec.data.cache_directory = "/d";
  spec.output.directory = "/o";
  spec.report.tensorboard = "/t";
  job.spec = std::make_shared<const JobSpec>(spec);
  job.checkpoint_bytes = 1000;
  const std::vector<DiskNeed> needs = DiskNeedsOf(job);
  ASSERT_EQ(needs.size(), 4u);
  EXPECT_EQ(needs[0].directory, "/c");
  EXPECT_EQ(needs[0].bytes, 1000 + kDiskMarginBytes);
  EXPECT_EQ(needs[1].directory, "/d");
  EXPECT_EQ(needs[1].bytes, kDiskMarginBytes);
  EXPECT_EQ(needs[2].directory, "/o");
  EXPECT_EQ(needs[2].bytes, kDiskMarginBytes);
  EXPECT_EQ(needs[3].directory, "/t");
  EXPECT_EQ(needs[3].bytes, kDiskMarginBytes);
}

}  // namespace
}  // namespace megatrain

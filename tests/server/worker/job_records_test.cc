#include "server/worker/job_records.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/small_disk.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<LogRecord> ReadAll(const RecordLog& log) {
  std::vector<LogRecord> records;
  EXPECT_TRUE(log.Read(1)->Next(1 << 20, &records).ok());
  return records;
}

std::vector<std::string> Lines(const JobRecords& records) {
  std::vector<std::string> lines;
  for (const LogRecord& record : ReadAll(records.log())) {
    lines.push_back(nlohmann::json::parse(record.text)["text"]);
  }
  return lines;
}

StepRecord Step(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1.0 / static_cast<double>(step);
  record.time = "2024-05-01T12:00:00Z";
  return record;
}

// While this lives, no file of this process can grow beyond 10 bytes.
class NoFileGrows {
 public:
  NoFileGrows() {
    signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit small = before_;
    small.rlim_cur = 10;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~NoFileGrows() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }

 private:
  rlimit before_ = {};
};

TEST(JobRecordsTest, KeepsStepsAndLinesOverARestart) {
  const std::string directory = FreshDirectory("restart");
  {
    auto records = JobRecords::Open(directory);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_TRUE((*records)->AddLine(0, "does not fit\n  host total  5 bytes\n\xff").ok());
    EXPECT_TRUE((*records)->AddStep(Step(1)).ok());
    EXPECT_TRUE((*records)->AddStep(Step(2)).ok());
    EXPECT_TRUE((*records)->Sync().ok());
  }
  auto records = JobRecords::Open(directory);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_TRUE((*records)->FallBack(1).ok());
  EXPECT_TRUE((*records)->AddStep(Step(2)).ok());
  const std::vector<LogRecord> steps = ReadAll((*records)->metrics());
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0].text, StepRecordJson(Step(1)));
  EXPECT_TRUE(steps[1].superseded);
  EXPECT_EQ(steps[2].kind, LogRecord::Kind::kFellBack);
  EXPECT_FALSE(steps[3].superseded);
  EXPECT_THAT(Lines(**records), ElementsAre("does not fit\n  host total  5 bytes\n\xef\xbf\xbd"));
  (*records)->Close();
  EXPECT_TRUE((*records)->log().closed());
  EXPECT_TRUE((*records)->metrics().closed());
}

TEST(JobRecordsTest, TellsOfTornRecordsInTheLog) {
  const std::string directory = FreshDirectory("torn");
  {
    auto records = JobRecords::Open(directory);
    ASSERT_TRUE(records.ok()) << records.status();
    ASSERT_TRUE((*records)->AddStep(Step(1)).ok());
    ASSERT_TRUE((*records)->AddStep(Step(2)).ok());
  }
  const std::string path = directory + "/metrics/00000000000000000001.log";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  auto records = JobRecords::Open(directory);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ((*records)->metrics().next_sequence(), 2);
  EXPECT_THAT(Lines(**records), ElementsAre(HasSubstr("no whole record")));
}

TEST(JobRecordsTest, ALongLineIsCut) {
  auto records = JobRecords::Open(FreshDirectory("long"));
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_TRUE((*records)->AddLine(1, std::string(size_t{2} << 20, '\x01')).ok());
  EXPECT_THAT(Lines(**records), ElementsAre(HasSubstr("bytes, cut)")));
}

TEST(JobRecordsTest, ALineIsCutAfter128KiBAndSaysHowLongItWas) {
  auto records = JobRecords::Open(FreshDirectory("cut"));
  ASSERT_TRUE(records.ok()) << records.status();
  const std::string whole(size_t{128} << 10, 'a');
  EXPECT_TRUE((*records)->AddLine(7, whole).ok());
  EXPECT_TRUE((*records)->AddLine(7, whole + "b").ok());
  const std::vector<std::string> lines = Lines(**records);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0] == whole);
  EXPECT_TRUE(lines[1] == whole + " ... (131073 bytes, cut)");
  EXPECT_EQ(ReadAll((*records)->log())[0].step, 7);
}

TEST(JobRecordsTest, AFailureIsSaidOnceAndWhatIsMissingWhenItEnds) {
  auto records = JobRecords::Open(FreshDirectory("full"));
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_TRUE((*records)->AddStep(Step(1)).ok());
  {
    const NoFileGrows limit;
    EXPECT_FALSE((*records)->AddStep(Step(2)).ok());
    EXPECT_TRUE((*records)->AddStep(Step(3)).ok());
    EXPECT_TRUE((*records)->AddLine(3, "a line").ok());
  }
  EXPECT_TRUE((*records)->AddStep(Step(4)).ok());
  EXPECT_THAT(Lines(**records), ElementsAre(HasSubstr("3 records of this job's")));
  EXPECT_EQ(ReadAll((*records)->metrics()).size(), 2u);
}

TEST(JobRecordsTest, WhatIsMissingIsToldAtTheLatestWhenTheyAreClosed) {
  auto records = JobRecords::Open(FreshDirectory("closed"));
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_TRUE((*records)->AddStep(Step(1)).ok());
  {
    const NoFileGrows limit;
    EXPECT_FALSE((*records)->AddStep(Step(2)).ok());
  }
  (*records)->Close();
  EXPECT_THAT(Lines(**records), ElementsAre(HasSubstr("1 record of this job's")));
}

TEST(JobRecordsTest, WhatMeetsAFullDiskWaitsForRoom) {
  const std::string directory = FreshDirectory("no_room");
  std::filesystem::create_directories(directory);
  auto disk = SmallDisk::Mount(directory, 1 << 20);
  if (absl::IsPermissionDenied(disk.status())) GTEST_SKIP() << "needs the right to mount";
  ASSERT_TRUE(disk.ok()) << disk.status();
  auto records = JobRecords::Open(directory);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_TRUE((*records)->AddStep(Step(1)).ok());
  ASSERT_TRUE((*disk)->Fill().ok());
  int64_t step = 2;
  // What is left of the page that was begun is used up first.
  while ((*records)->AddStep(Step(step)).ok()) ++step;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsDiskFull((*records)->AddStep(Step(++step))));
  EXPECT_TRUE(IsDiskFull((*records)->AddLine(step, "a line")));
  EXPECT_TRUE(IsDiskFull((*records)->FallBack(step - 1)));
  EXPECT_LT(static_cast<int64_t>(ReadAll((*records)->metrics()).size()), step);
  (*disk)->MakeRoom();
  EXPECT_TRUE((*records)->AddStep(Step(step)).ok());
  const std::vector<LogRecord> all = ReadAll((*records)->metrics());
  ASSERT_EQ(static_cast<int64_t>(all.size()), step + 2);
  for (int64_t i = 1; i <= step; ++i) EXPECT_EQ(all[static_cast<size_t>(i - 1)].step, i);
  EXPECT_TRUE(all[static_cast<size_t>(step - 1)].superseded);
  EXPECT_EQ(all[static_cast<size_t>(step)].kind, LogRecord::Kind::kFellBack);
  EXPECT_EQ(all.back().step, step);
  EXPECT_THAT(Lines(**records), ElementsAre("a line"));
}

TEST(JobRecordsTest, WhatHasWaitedLeavesItsRoomToOthers) {
  const std::string directory = FreshDirectory("no_room_again");
  std::filesystem::create_directories(directory);
  auto disk = SmallDisk::Mount(directory, 16 << 20);
  if (absl::IsPermissionDenied(disk.status())) GTEST_SKIP() << "needs the right to mount";
  ASSERT_TRUE(disk.ok()) << disk.status();
  auto records = JobRecords::Open(directory);
  ASSERT_TRUE(records.ok()) << records.status();
  // As JSON the lines of a round take 3 MiB, of 4 MiB that may wait.
  const std::string line(size_t{128} << 10, '\x01');
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE((*disk)->Fill().ok());
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(IsDiskFull((*records)->AddLine(1, line)));
    (*disk)->MakeRoom();
    EXPECT_TRUE((*records)->AddLine(1, "the last one").ok());
  }
  const std::vector<std::string> lines = Lines(**records);
  ASSERT_EQ(lines.size(), 10u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i] == (i % 5 < 4 ? line : "the last one")) << i;
  }
}

TEST(JobRecordsTest, NoMoreWaitsThanMay) {
  const std::string directory = FreshDirectory("no_room_for_long");
  std::filesystem::create_directories(directory);
  auto disk = SmallDisk::Mount(directory, 16 << 20);
  if (absl::IsPermissionDenied(disk.status())) GTEST_SKIP() << "needs the right to mount";
  ASSERT_TRUE(disk.ok()) << disk.status();
  auto records = JobRecords::Open(directory);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_TRUE((*disk)->Fill().ok());
  // As JSON each takes 0.75 MiB, of 4 MiB that may wait.
  const std::string line(size_t{128} << 10, '\x01');
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(IsDiskFull((*records)->AddLine(1, line)));
  (*disk)->MakeRoom();
  EXPECT_TRUE((*records)->AddLine(1, "the last one").ok());
  const std::vector<std::string> lines = Lines(**records);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_THAT(lines[5], HasSubstr("3 records of this job's"));
  EXPECT_EQ(lines[6], "the last one");
}

TEST(JobRecordsDirectoryTest, SharesWhatIsOpenAndClosesWhatIsNot) {
  JobRecordsDirectory directory(FreshDirectory("directory"));
  auto a = directory.Open("a");
  ASSERT_TRUE(a.ok()) << a.status();
  auto again = directory.Open("a");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(a->get(), again->get());
  EXPECT_TRUE((*a)->AddLine(0, "kept").ok());
  a->reset();
  again->reset();
  for (int i = 0; i < 3; ++i) {
    auto b = directory.Open(absl::StrCat("b", i));
    ASSERT_TRUE(b.ok()) << b.status();
  }
  a = directory.Open("a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_THAT(Lines(**a), ElementsAre("kept"));
}

TEST(JobRecordsDirectoryTest, WhatWaitsForRoomIsKeptWhileOthersAreOpened) {
  const std::string path = FreshDirectory("no_room_directory");
  std::filesystem::create_directories(path);
  auto disk = SmallDisk::Mount(path, 1 << 20);
  if (absl::IsPermissionDenied(disk.status())) GTEST_SKIP() << "needs the right to mount";
  ASSERT_TRUE(disk.ok()) << disk.status();
  JobRecordsDirectory directory(path);
  auto records = directory.Open("a");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_TRUE((*disk)->Fill().ok());
  while ((*records)->AddLine(1, "a line").ok()) {
  }
  ASSERT_TRUE(IsDiskFull((*records)->AddLine(1, "waits")));
  EXPECT_TRUE((*records)->HasWaiting());
  records->reset();
  directory.Open("b").status().IgnoreError();  // there may be no room for it
  (*disk)->MakeRoom();
  records = directory.Open("a");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_TRUE((*records)->AddLine(1, "the last one").ok());
  EXPECT_FALSE((*records)->HasWaiting());
  const std::vector<std::string> lines = Lines(**records);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[lines.size() - 2], "waits");
  EXPECT_EQ(lines.back(), "the last one");
}

TEST(JobRecordsDirectoryTest, WhatIsMissingIsToldThoughOthersWereOpened) {
  JobRecordsDirectory directory(FreshDirectory("missing"));
  auto records = directory.Open("a");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_TRUE((*records)->AddStep(Step(1)).ok());
  {
    const NoFileGrows limit;
    EXPECT_FALSE((*records)->AddStep(Step(2)).ok());
  }
  records->reset();
  ASSERT_TRUE(directory.Open("b").ok());
  records = directory.Open("a");
  ASSERT_TRUE(records.ok()) << records.status();
  (*records)->Close();
  EXPECT_THAT(Lines(**records), ElementsAre(HasSubstr("1 record of this job's")));
  // What is added too late waits for nothing.
  EXPECT_FALSE((*records)->AddStep(Step(3)).ok());
  EXPECT_FALSE((*records)->HasWaiting());
}

TEST(JobRecordsDirectoryTest, TheLastStepIsThatOfTheNewestRecord) {
  const std::string directory = FreshDirectory("last_step");
  {
    JobRecordsDirectory records(directory);
    EXPECT_EQ(records.LastStep("a"), 0);
    const auto job = records.Open("a");
    ASSERT_TRUE(job.ok()) << job.status();
    for (int64_t step = 1; step <= 57; ++step) ASSERT_TRUE((*job)->AddStep(Step(step)).ok());
    EXPECT_EQ(records.LastStep("a"), 57);
  }
  JobRecordsDirectory records(directory);
  EXPECT_EQ(records.LastStep("a"), 57) << "after a restart";
  ASSERT_TRUE((*records.Open("a"))->FallBack(40).ok());
  EXPECT_EQ(records.LastStep("a"), 40);
}

TEST(JobRecordsDirectoryTest, RecordsThatCannotBeReadHaveNoLastStep) {
  const std::string directory = FreshDirectory("unreadable");
  std::ofstream(directory + "/a") << "a file where the directory should be";
  JobRecordsDirectory records(directory);
  EXPECT_EQ(records.LastStep("a"), 0);
}

TEST(JobRecordsDirectoryTest, NoFilesStayOpenOfJobsThatNobodyUses) {
  JobRecordsDirectory directory(FreshDirectory("files"));
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  ASSERT_TRUE(directory.Open("first").ok());
  const auto before = open_files();
  for (int i = 0; i < 20; ++i) {
    const auto records = directory.Open(absl::StrCat("b", i));
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_TRUE((*records)->AddLine(0, "a line").ok());
  }
  EXPECT_LE(open_files(), before + 4) << "those of the last one";
}

}  // namespace
}  // namespace megatrain

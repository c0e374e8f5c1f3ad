#include "server/store/recorded_step.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

StepRecord StepOf(int64_t step) {
  StepRecord record;
  record.step = step;
  return record;
}

TEST(RecordedStepTest, IsThatOfTheNewestRecord) {
  const TestDirectory directory;
  {
    JobRecordsDirectory records(directory.path());
    EXPECT_EQ(RecordedStep(&records, "a"), 0);
    const auto job = records.Open("a");
    ASSERT_TRUE(job.ok()) << job.status();
    for (int64_t step = 1; step <= 57; ++step) ASSERT_TRUE((*job)->AddStep(StepOf(step)).ok());
    EXPECT_EQ(RecordedStep(&records, "a"), 57);
  }
  JobRecordsDirectory records(directory.path());
  EXPECT_EQ(RecordedStep(&records, "a"), 57) << "after a restart";
  ASSERT_TRUE((*records.Open("a"))->FallBack(40).ok());
  EXPECT_EQ(RecordedStep(&records, "a"), 40);
}

TEST(RecordedStepTest, RecordsThatCannotBeReadAreNone) {
  const TestDirectory directory;
  std::ofstream(directory / "a") << "a file where the directory should be";
  JobRecordsDirectory records(directory.path());
  EXPECT_EQ(RecordedStep(&records, "a"), 0);
}

}  // namespace
}  // namespace megatrain

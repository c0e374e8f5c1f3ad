#include "server/api/job_filter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

Job MakeJob(JobState state, const std::string& user = "anna", const std::string& name = "demo") {
  Job job;
  job.state = state;
  job.user = user;
  job.display_name = name;
  return job;
}

bool Matches(const std::string& filter, const Job& job) {
  const absl::StatusOr<JobFilter> parsed = ParseJobFilter(filter);
  EXPECT_TRUE(parsed.ok()) << filter << ": " << parsed.status();
  return parsed.ok() && (*parsed)(job);
}

TEST(JobFilterTest, EmptyIsNone) {
  EXPECT_EQ(ParseJobFilter("").value(), nullptr);
  EXPECT_EQ(ParseJobFilter("  \n").value(), nullptr);
}

TEST(JobFilterTest, ComparesFields) {
  const Job running = MakeJob(JobState::kRunning);
  EXPECT_TRUE(Matches("state = RUNNING", running));
  EXPECT_TRUE(Matches("state=RUNNING", running));
  EXPECT_TRUE(Matches("state = \"RUNNING\"", running));
  EXPECT_FALSE(Matches("state != RUNNING", running));
  EXPECT_FALSE(Matches("state = QUEUED", running));
  EXPECT_TRUE(Matches("user = anna", running));
  EXPECT_TRUE(Matches("user = 'anna'", running));
  EXPECT_FALSE(Matches("user = bob", running));
  EXPECT_TRUE(Matches("display_name = demo", running));
  EXPECT_TRUE(Matches("user = anna-b.c@d", MakeJob(JobState::kRunning, "anna-b.c@d")));
  EXPECT_TRUE(Matches("user = änne", MakeJob(JobState::kRunning, "änne")));
  Job paused = MakeJob(JobState::kPaused);
  paused.reason = JobReason::kDiskFull;
  EXPECT_TRUE(Matches("reason = DISK_FULL", paused));
  EXPECT_FALSE(Matches("reason = REASON_UNSPECIFIED", paused));
  EXPECT_TRUE(Matches("reason = REASON_UNSPECIFIED", running));
}

TEST(JobFilterTest, ADifferenceLetsAllOthersThrough) {
  Job paused = MakeJob(JobState::kPaused);
  paused.reason = JobReason::kDiskFull;
  EXPECT_TRUE(Matches("state != QUEUED", paused));
  EXPECT_FALSE(Matches("state != PAUSED", paused));
  EXPECT_TRUE(Matches("reason!=USER_REQUEST", paused));
  EXPECT_FALSE(Matches("reason!=DISK_FULL", paused));
  EXPECT_TRUE(Matches("user != bob", paused));
  EXPECT_FALSE(Matches("user != anna", paused));
  EXPECT_TRUE(Matches("display_name != 'another demo'", paused));
  EXPECT_FALSE(Matches("display_name != demo", paused));
  EXPECT_FALSE(Matches("user != bob AND state != PAUSED", paused));
}

TEST(JobFilterTest, OrBindsTighterThanAnd) {
  const std::string filter = "user = anna AND state = RUNNING OR state = QUEUED";
  EXPECT_TRUE(Matches(filter, MakeJob(JobState::kRunning)));
  EXPECT_TRUE(Matches(filter, MakeJob(JobState::kQueued)));
  EXPECT_FALSE(Matches(filter, MakeJob(JobState::kQueued, "bob")));
  EXPECT_FALSE(Matches(filter, MakeJob(JobState::kPaused)));
}

TEST(JobFilterTest, QuotedTextIsTakenAsItIs) {
  EXPECT_TRUE(Matches("display_name = \"a AND b\"", MakeJob(JobState::kQueued, "anna", "a AND b")));
  EXPECT_TRUE(
      Matches("display_name = \"say \\\"x\\\"\"", MakeJob(JobState::kQueued, "anna", "say \"x\"")));
  EXPECT_TRUE(Matches("display_name = \"\"", MakeJob(JobState::kQueued, "anna", "")));
  EXPECT_TRUE(Matches("display_name = \"=\"", MakeJob(JobState::kQueued, "anna", "=")));
}

TEST(JobFilterTest, WhatIsNotUnderstoodIsRefused) {
  const std::string cases[][2] = {
      {"state", "ends in the middle"},
      {"state =", "ends in the middle"},
      {"state = RUNNING AND", "ends in the middle"},
      {"state = WALKING", "there are QUEUED, PREPARING"},
      {"state RUNNING x", "expects = or !="},
      {"user '=' anna", "expects = or !="},
      {"'user' = anna", "no field user"},
      {"user = anna 'OR' user = bob", "expects AND or OR"},
      {"state = =", "expects a value"},
      {"reason = TIRED", "no reason TIRED"},
      {"size = 3", "no field size"},
      {"state = RUNNING state = QUEUED", "expects AND or OR"},
      {"state < RUNNING", "\"<\" at byte 6"},
      {"(state = RUNNING)", "\"(\" at byte 0"},
      {"user = \"anna", "not closed"},
      {"user = \"anna\\", "not closed"},
      {"user !", "\"!\" at byte 5"},
      {"user ! anna", "\"!\" at byte 5"},
      {std::string("user = \0", 8), "\"?\" at byte 7"},
      {std::string(5000, 'a'), "at most 4096"},
  };
  for (const auto& [filter, message] : cases) {
    const auto parsed = ParseJobFilter(filter);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << filter;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(message)) << filter;
    EXPECT_EQ(ReasonOf(parsed.status())->reason, "INVALID_FILTER");
  }
  EXPECT_TRUE(ParseJobFilter("user = " + std::string(4089, 'a')).ok());
  EXPECT_FALSE(ParseJobFilter("user = " + std::string(4090, 'a')).ok());
}

}  // namespace
}  // namespace megatrain

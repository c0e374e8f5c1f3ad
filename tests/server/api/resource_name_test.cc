#include "server/api/resource_name.h"

#include <string>

#include "gtest/gtest.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

TEST(ResourceNameTest, JobsReadBack) {
  EXPECT_EQ(JobName("abc123"), "jobs/abc123");
  EXPECT_EQ(ParseJobName("name", "jobs/abc123").value(), "abc123");
  EXPECT_EQ(ParseJobName("name", "jobs/a-b_C").value(), "a-b_C");
  EXPECT_TRUE(ParseJobName("name", "jobs/" + std::string(100, 'a')).ok());
  EXPECT_FALSE(ParseJobName("name", "jobs/" + std::string(101, 'a')).ok());
}

TEST(ResourceNameTest, OtherNamesOfJobsAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("abc"), std::string("jobs/"), std::string("jobs/a/b"),
        std::string("jobs/.."), std::string("jobs/a b"), std::string("/jobs/a"),
        std::string("jobs/a\0b", 8), std::string("jobs/\xFF"), "jobs/" + std::string(200, 'a'),
        std::string("nodes/local")}) {
    const auto id = ParseJobName("parent", name);
    ASSERT_EQ(id.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(ReasonOf(id.status())->reason, "INVALID_FIELD");
    EXPECT_EQ(ReasonOf(id.status())->metadata.at(0).second, "parent");
    EXPECT_LT(id.status().message().size(), 300u);
  }
}

TEST(ResourceNameTest, CheckpointsNameTheirStepOrMeanTheNewest) {
  EXPECT_EQ(CheckpointName("a", 100), "jobs/a/checkpoints/100");
  EXPECT_EQ(ParseCheckpointName("name", "jobs/a/checkpoints/100")->job_id, "a");
  EXPECT_EQ(ParseCheckpointName("name", "jobs/a/checkpoints/100")->step, 100);
  EXPECT_EQ(ParseCheckpointName("name", "jobs/a")->step, 0);
  for (const char* name : {"", "jobs/a/checkpoints", "jobs/a/checkpoints/", "jobs/a/checkpoints/0",
                           "jobs/a/checkpoints/-1", "jobs/a/checkpoints/x", "jobs/a/steps/1",
                           "jobs/a/checkpoints/1/2", "jobs/a/checkpoints/99999999999999999999",
                           "jobs/a/checkpoints/+5", "jobs/a/checkpoints/007", "nodes/a",
                           "nodes/a/checkpoints/1", "jobs/a b", "jobs//checkpoints/1"}) {
    EXPECT_EQ(ParseCheckpointName("name", name).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST(ResourceNameTest, ThereIsOneNode) {
  EXPECT_TRUE(CheckNodeName("name", "nodes/local").ok());
  EXPECT_EQ(CheckNodeName("name", "").code(), absl::StatusCode::kInvalidArgument);
  const absl::Status other = CheckNodeName("name", "nodes/other");
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(other)->reason, "NODE_NOT_FOUND");
}

}  // namespace
}  // namespace megatrain

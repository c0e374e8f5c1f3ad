#include "client/context/job_name.h"

#include <gtest/gtest.h>

namespace megatrain::client {
namespace {

TEST(JobNameTest, NamesAndIds) {
  EXPECT_EQ(*ParseJobName("jobs/a1"), "jobs/a1");
  EXPECT_EQ(*ParseJobName("a1"), "jobs/a1");
  for (const char* const text :
       {"", "jobs/", "jobs/a/b", "a b", "jobs/a1/checkpoints/5", "../a", "a\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJobName(text).status())) << text;
  }
}

TEST(JobNameTest, Checkpoints) {
  EXPECT_EQ(*ParseJobOrCheckpointName("a1"), "jobs/a1");
  EXPECT_EQ(*ParseJobOrCheckpointName("jobs/a1/checkpoints/500"), "jobs/a1/checkpoints/500");
  EXPECT_EQ(*ParseJobOrCheckpointName("a1/checkpoints/5"), "jobs/a1/checkpoints/5");
  for (const char* const text : {"jobs/a1/checkpoints/", "jobs/a1/checkpoints/x", "a1/5", ""}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJobOrCheckpointName(text).status())) << text;
  }
}

}  // namespace
}  // namespace megatrain::client

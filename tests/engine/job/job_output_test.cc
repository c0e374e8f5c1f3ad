// The place of a job's output among what else it writes.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/job/job_texts.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

TEST(JobOutputTest, NothingThatTheJobWritesLiesInTheOutput) {
  for (const std::string key :
       {"checkpoint.directory", "report.tensorboard", "data.cache_directory"}) {
    for (const std::string path : {"out", "out/a"}) {
      EXPECT_THAT(Refusal("", {"output.directory=out/", key + "=" + path}),
                  HasSubstr(key + " (/jobs/" + path + ") lies in it; name another"));
    }
    EXPECT_EQ(Refusal("", {"output.directory=a/out", key + "=a"}), "accepted");
    EXPECT_EQ(Refusal("", {"output.directory=out", key + "=outer"}), "accepted");
  }
}

}  // namespace
}  // namespace megatrain

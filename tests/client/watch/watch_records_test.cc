#include "client/watch/watch_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::IsEmpty;

TEST(WatchRecordsTest, EachSaysWhatItIs) {
  EXPECT_EQ(WatchRecords(JobMessage(v1::Job::RUNNING))[0]["job"]["state"], "RUNNING");
  EXPECT_EQ(WatchRecords(EventMessage(3, v1::Job::PAUSED, "x"))[0]["event"]["sequence"], 3);
  const auto steps = WatchRecords(Steps({Step(1, 2), Step(2, 2)}));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1]["step"]["step"], 2);
  EXPECT_EQ(WatchRecords(FellBack(4))[0]["fell_back"]["checkpoint_step"], 4);
  EXPECT_EQ(WatchRecords(Log({"a"}))[0]["log"]["text"], "a");
  EXPECT_EQ(WatchRecords(StreamLost{WatchStream::kJob, "", absl::UnixEpoch()})[0]["connection"],
            "lost");
  EXPECT_EQ(WatchRecords(StreamRestored{WatchStream::kJob})[0]["connection"], "restored");
  EXPECT_THAT(WatchRecords(StreamRestored{WatchStream::kLogs}), IsEmpty());
  EXPECT_THAT(WatchRecords(v1::StreamLogsResponse()), IsEmpty());
}

}  // namespace
}  // namespace megatrain::client

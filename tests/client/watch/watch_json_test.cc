#include "client/watch/watch_json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

TEST(WatchRecordsTest, EachSaysWhatItIs) {
  EXPECT_EQ(WatchRecords(JobMessage(v1::Job::RUNNING))[0]["job"]["state"], "RUNNING");
  EXPECT_EQ(WatchRecords(EventMessage(3, v1::Job::PAUSED, "x"))[0]["event"]["sequence"], 3);
  const auto steps = WatchRecords(Steps({Step(1, 2), Step(2, 2)}));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1]["step"]["step"], 2);
  EXPECT_EQ(WatchRecords(FellBack(4))[0]["fell_back"]["checkpoint_step"], 4);
  EXPECT_EQ(WatchRecords(Log({"a"}))[0]["log"]["text"], "a");
}

TEST(WatchRecordsTest, EachStreamSaysWhatItMisses) {
  const auto last_missed = [](const WatchEvent& event) {
    std::vector<nlohmann::ordered_json> records = WatchRecords(event);
    return records.size() == 1 ? records[0]["missed"]["last_sequence"].get<int64_t>() : -1;
  };
  v1::WatchJobResponse events;
  events.mutable_missed()->set_last_sequence(5);
  EXPECT_EQ(last_missed(events), 5);
  v1::StreamStepMetricsResponse steps;
  steps.mutable_missed()->set_last_sequence(6);
  EXPECT_EQ(last_missed(steps), 6);
  v1::StreamLogsResponse lines;
  lines.mutable_missed()->set_last_sequence(7);
  EXPECT_EQ(last_missed(lines), 7);
}

TEST(WatchRecordsTest, OnlyTheJobsStreamTellsOfTheConnection) {
  const auto told = [](const WatchEvent& event) {
    std::vector<nlohmann::ordered_json> records = WatchRecords(event);
    return records.size() == 1 ? records[0]["connection"].get<std::string>()
                               : std::to_string(records.size()) + " records";
  };
  EXPECT_EQ(told(StreamLost{WatchStream::kJob, "x", absl::UnixEpoch()}), "lost");
  EXPECT_EQ(told(StreamRestored{WatchStream::kJob}), "restored");
  for (const WatchStream other : {WatchStream::kMetrics, WatchStream::kLogs, WatchStream::kNode}) {
    EXPECT_EQ(told(StreamLost{other, "x", absl::UnixEpoch()}), "0 records");
    EXPECT_EQ(told(StreamRestored{other}), "0 records");
  }
}

}  // namespace
}  // namespace megatrain::client

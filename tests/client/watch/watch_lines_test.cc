#include "client/watch/watch_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class WatchLinesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Lines(const WatchEvent& event) {
    model_.Apply(event);
    return lines_.Lines(event, model_);
  }
  WatchModel model_;
  WatchLines lines_;
};

TEST_F(WatchLinesTest, StepsOnceInFiveSeconds) {
  Lines(JobMessage(v1::Job::RUNNING, 0, 40));
  std::vector<v1::StepMetrics> steps;
  for (int step = 1; step <= 40; ++step) {
    steps.push_back(step == 25 ? Step(step, 2, 1.5) : Step(step, 2));
  }
  // Half a second each: the first, every tenth after it, the evaluation, ten after that, the last.
  EXPECT_THAT(
      Lines(Steps(steps)),
      ElementsAre(StartsWith("step 1/40 "), StartsWith("step 11/40 "), StartsWith("step 21/40 "),
                  StartsWith("step 25/40 "), StartsWith("step 35/40 "), StartsWith("step 40/40 ")));
}

TEST_F(WatchLinesTest, AStepInFull) {
  Lines(JobMessage(v1::Job::RUNNING, 0, 40));
  EXPECT_THAT(Lines(Steps({Step(20, 2.5, 2.25)})),
              ElementsAre("step 20/40  loss 2.5000  gradient norm 0.750  learning rate 1.000e-03  "
                          "8.19k tokens/s  eval loss 2.2500  ETA 10s"));
}

TEST_F(WatchLinesTest, OfSeveralRanksTheSlowestIsNamed) {
  v1::WatchJobResponse job = JobMessage(v1::Job::RUNNING, 0, 40);
  Lines(job);
  EXPECT_THAT(Lines(Steps({StepOfRanks(20)})),
              ElementsAre(HasSubstr("  slowest: rank 3, compute 0.45 s, mean 0.375 s  ETA 10s")));
  for (const char* device : {"cuda:4", "cuda:5", "cuda:6", "cuda:7"}) {
    job.mutable_job()->add_devices(device);
  }
  Lines(job);
  EXPECT_THAT(Lines(Steps({StepOfRanks(40)})),
              ElementsAre(EndsWith("  slowest: rank 3 (cuda:7), compute 0.45 s, mean 0.375 s")))
      << "no time is left after the last step";
}

TEST_F(WatchLinesTest, EventsAndPlacesInTheQueue) {
  v1::WatchJobResponse queued = JobMessage(v1::Job::QUEUED);
  queued.mutable_job()->mutable_queue()->set_position(2);
  EXPECT_THAT(Lines(queued), ElementsAre("QUEUED: number 2 in the queue"));
  queued.mutable_job()->mutable_queue()->mutable_predicted_start_time()->set_seconds(5);
  queued.mutable_job()->set_reason_text("submitted by anna");
  EXPECT_THAT(Lines(queued), IsEmpty()) << "the same place again";
  EXPECT_THAT(Lines(EventMessage(2, v1::Job::PREPARING, "")), ElementsAre("PREPARING"));
  EXPECT_THAT(Lines(EventMessage(3, v1::Job::PAUSING, "paused by anna")),
              ElementsAre("PAUSING: paused by anna"));
  EXPECT_THAT(Lines(JobMessage(v1::Job::PAUSING)), IsEmpty());
}

TEST_F(WatchLinesTest, TheServerGoesOnceHoweverOftenItIsTried) {
  const StreamLost lost{WatchStream::kJob, "nobody listens", absl::UnixEpoch()};
  EXPECT_THAT(Lines(lost), ElementsAre("the server is away, trying again: nobody listens"));
  EXPECT_THAT(Lines(lost), IsEmpty());
  EXPECT_THAT(Lines(StreamLost{WatchStream::kLogs, "x", absl::UnixEpoch()}), IsEmpty());
  EXPECT_THAT(Lines(StreamRestored{WatchStream::kJob}),
              ElementsAre(HasSubstr("the server is back")));
  EXPECT_THAT(Lines(StreamRestored{WatchStream::kLogs}), IsEmpty());
  EXPECT_THAT(Lines(lost), ElementsAre(HasSubstr("away")));
}

TEST_F(WatchLinesTest, FallingBackAndWhatIsMissing) {
  Lines(Steps({Step(9, 2)}));
  EXPECT_THAT(Lines(FellBack(5)), ElementsAre(HasSubstr("goes on after step 5")));
  EXPECT_THAT(Lines(Steps({Step(6, 2)})), ElementsAre(StartsWith("step 6 ")))
      << "its time is before that of the step told last";
  v1::StreamStepMetricsResponse message;
  message.mutable_missed()->set_first_sequence(3);
  message.mutable_missed()->set_last_sequence(7);
  EXPECT_THAT(Lines(message), ElementsAre("step records 3 to 7 are no longer kept"));
}

TEST_F(WatchLinesTest, StepsThatNoLongerCountAreNotTold) {
  v1::StreamStepMetricsResponse message = Steps({Step(1, 4), Step(2, 3)});
  message.mutable_batch()->mutable_records(0)->set_superseded(true);
  EXPECT_THAT(Lines(message), ElementsAre(StartsWith("step 2 ")));
}

TEST_F(WatchLinesTest, EventsThatAreNoLongerKept) {
  v1::WatchJobResponse message;
  message.mutable_missed()->set_first_sequence(1);
  message.mutable_missed()->set_last_sequence(5);
  EXPECT_THAT(Lines(message), ElementsAre("events 1 to 5 are no longer kept"));
}

TEST_F(WatchLinesTest, LogLines) {
  EXPECT_THAT(Lines(Log({"a", "b\x1b[1m"})), ElementsAre("a", "b?[1m"));
}

}  // namespace
}  // namespace megatrain::client

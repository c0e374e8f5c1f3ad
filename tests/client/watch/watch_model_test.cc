#include "client/watch/watch_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::ElementsAre;

TEST(WatchModelTest, StepsThatAreDoneAgainCountOnce) {
  WatchModel model;
  model.Apply(Steps({Step(1, 4), Step(2, 3), Step(3, 2)}));
  model.Apply(FellBack(1));
  EXPECT_THAT(model.state().losses, ElementsAre(LossPoint{1, 4}));
  EXPECT_FALSE(model.state().metrics.has_value());
  model.Apply(Steps({Step(2, 3.5)}));
  EXPECT_THAT(model.state().losses, ElementsAre(LossPoint{1, 4}, LossPoint{2, 3.5}));
  EXPECT_EQ(model.state().metrics->step(), 2);
  model.Apply(FellBack(2));
  EXPECT_TRUE(model.state().metrics.has_value()) << "the checkpoint has this step";
}

TEST(WatchModelTest, ARepeatedStepReplacesWithoutBeingTold) {
  WatchModel model;
  model.Apply(Steps({Step(1, 4, 3.9), Step(2, 3, 2.9), Step(1, 5)}));
  EXPECT_THAT(model.state().losses, ElementsAre(LossPoint{1, 5}));
  EXPECT_THAT(model.state().evaluations, ElementsAre());
}

TEST(WatchModelTest, SupersededRecordsDoNotCount) {
  WatchModel model;
  v1::StreamStepMetricsResponse message = Steps({Step(1, 4), Step(2, 9), Step(2, 3)});
  message.mutable_batch()->mutable_records(1)->set_superseded(true);
  model.Apply(message);
  EXPECT_THAT(model.state().losses, ElementsAre(LossPoint{1, 4}, LossPoint{2, 3}));
}

TEST(WatchModelTest, CountsWhatWasMissed) {
  WatchModel model;
  v1::StreamStepMetricsResponse message;
  message.mutable_missed()->set_first_sequence(1);
  message.mutable_missed()->set_last_sequence(500);
  model.Apply(message);
  EXPECT_EQ(model.state().missed_records, 500);
  model.Apply(message);
  EXPECT_EQ(model.state().missed_records, 1000);
}

TEST(WatchModelTest, TheFileIsKeptFromTheFirstMessage) {
  WatchModel model;
  v1::WatchJobResponse message = JobMessage(v1::Job::QUEUED);
  message.mutable_job()->mutable_file()->set_yaml("name: x");
  model.Apply(message);
  model.Apply(JobMessage(v1::Job::RUNNING));
  EXPECT_EQ(model.state().job->state(), v1::Job::RUNNING);
  EXPECT_EQ(model.state().job->file().yaml(), "name: x");
}

TEST(WatchModelTest, LogLinesAreBounded) {
  WatchModel model;
  for (size_t i = 0; i < kLogLinesKept + 3; ++i) model.Apply(Log({"line " + std::to_string(i)}));
  EXPECT_EQ(model.state().log.size(), kLogLinesKept);
  EXPECT_EQ(model.state().log.front(), "line 3");
}

TEST(WatchModelTest, TheServerGoesAndComes) {
  WatchModel model;
  model.Apply(StreamLost{WatchStream::kMetrics, "x", absl::UnixEpoch()});
  EXPECT_FALSE(model.state().job_stream_lost.has_value()) << "the job's stream speaks for all";
  model.Apply(StreamLost{WatchStream::kJob, "nobody listens", absl::UnixEpoch()});
  ASSERT_TRUE(model.state().job_stream_lost.has_value());
  model.Apply(StreamRestored{WatchStream::kLogs});
  EXPECT_TRUE(model.state().job_stream_lost.has_value());
  model.Apply(StreamRestored{WatchStream::kJob});
  EXPECT_FALSE(model.state().job_stream_lost.has_value());
  model.Apply(StreamLost{WatchStream::kJob, "nobody listens", absl::UnixEpoch()});
  model.Apply(StreamEnded{WatchStream::kLogs, absl::OkStatus()});
  EXPECT_TRUE(model.state().job_stream_lost.has_value());
  model.Apply(StreamEnded{WatchStream::kJob, absl::OkStatus()});
  EXPECT_FALSE(model.state().job_stream_lost.has_value());
}

TEST(WatchModelTest, ASeriesThatBeginsAnewIsReadAnew) {
  WatchModel model;
  model.Apply(Steps({Step(1, 4), Step(2, 3)}));
  model.Apply(Log({"a"}));
  model.Apply(StreamRestarted{WatchStream::kMetrics});
  EXPECT_TRUE(model.state().losses.empty());
  EXPECT_EQ(model.state().log.size(), 1u);
  model.Apply(StreamRestarted{WatchStream::kLogs});
  EXPECT_TRUE(model.state().log.empty());
}

TEST(WatchModelTest, OfASeriesThatBeginsAnewNothingWasMissed) {
  WatchModel model;
  v1::StreamStepMetricsResponse message;
  message.mutable_missed()->set_first_sequence(1);
  message.mutable_missed()->set_last_sequence(500);
  model.Apply(message);
  model.Apply(StreamRestarted{WatchStream::kMetrics});
  EXPECT_EQ(model.state().missed_records, 0);
}

TEST(WatchModelTest, TimeLeft) {
  WatchModel model;
  EXPECT_FALSE(TimeLeft(model.state()).has_value());
  model.Apply(JobMessage(v1::Job::RUNNING, 10, 100));
  EXPECT_FALSE(TimeLeft(model.state()).has_value()) << "no step's time is known";
  model.Apply(Steps({Step(20, 3)}));
  EXPECT_EQ(*TimeLeft(model.state()), absl::Seconds(40)) << "80 steps of half a second";
  v1::WatchJobResponse message = JobMessage(v1::Job::RUNNING, 10, 100);
  message.mutable_job()->mutable_progress()->set_step_seconds(0.25);
  model.Apply(message);
  EXPECT_EQ(*TimeLeft(model.state()), absl::Seconds(20)) << "the daemon's mean goes before";
  message.mutable_job()->mutable_progress()->set_step(120);
  model.Apply(message);
  EXPECT_EQ(*TimeLeft(model.state()), absl::ZeroDuration());
  message.mutable_job()->mutable_progress()->set_total_steps(0);
  model.Apply(message);
  EXPECT_FALSE(TimeLeft(model.state()).has_value()) << "the number of steps is not known";
  model.Apply(JobMessage(v1::Job::SUCCEEDED, 100, 100));
  EXPECT_FALSE(TimeLeft(model.state()).has_value());
}

}  // namespace
}  // namespace megatrain::client

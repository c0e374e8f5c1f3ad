#include "client/watch/watch_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

WatchState Running() {
  WatchModel model;
  v1::WatchJobResponse job = JobMessage(v1::Job::RUNNING, 100, 400);
  job.mutable_job()->mutable_progress()->set_step_seconds(0.5);
  job.mutable_job()->mutable_progress()->set_checkpoint_step(50);
  model.Apply(job);
  for (int step = 1; step <= 100; ++step) {
    model.Apply(
        Steps({step == 50 ? Step(step, 5 - 0.03 * step, 3.25) : Step(step, 5 - 0.03 * step)}));
  }
  model.Apply(NodeMessage(int64_t{1} << 30, int64_t{8} << 30));
  model.Apply(Log({"loading", "checkpoint of step 50 written"}));
  return model.state();
}

std::string Draw(const WatchState& state, int columns, int rows,
                 Charset charset = Charset::kAscii) {
  return absl::StrJoin(DrawWatch(state, {columns, rows}, absl::FromUnixSeconds(1000), charset),
                       "\n") +
         "\n";
}

TEST(WatchViewTest, EightyColumns) {
  EXPECT_EQ(Draw(Running(), 80, 24), R"(demo  jobs/a1  RUNNING
[############......................................] 100/400  25%  ETA 2m30s
loss     2.0000  eval loss 3.2500 at step 50  gradient norm 0.75  lr 0.001
speed    8.19k tokens/s  0.5 s a step  50.0GFLOP/s
  4.97 |*****
       |    ********
       |           ********
       |                  ********
       |                         *********
       |                                 *******
       |                                       *********
       |                                               ********
       |                                                      ********
       |                                                             ********
     2 |                                                                    ****
        step 1                                                               100
h2d      [#####.............................................]  10%  0.05 s
compute  [#############################################.....]  90%  0.45 s
d2h      [##................................................]   5%  0.025 s
update   [##########........................................]  20%  0.1 s
io       [..................................................]   0%  0 s
memory   pool 1.0 GiB of 8.0 GiB  job 600 MiB  device 100 MiB  saved at step 50
log      loading
         checkpoint of step 50 written
)");
}

TEST(WatchViewTest, InUtf8BarsAreFilledByEighths) {
  const auto blocks = [](int count) {
    std::string bar;
    for (int i = 0; i < count; ++i) bar += "█";
    return bar;
  };
  // A quarter of fifty columns, a tenth, and nothing.
  EXPECT_THAT(Draw(Running(), 80, 24, Charset::kUtf8),
              AllOf(HasSubstr("\n▕" + blocks(12) + "▌" + std::string(37, ' ') + "▏ 100/400  25%"),
                    HasSubstr("\nh2d      ▕" + blocks(5) + std::string(45, ' ') + "▏  10%"),
                    HasSubstr("\nio       ▕" + std::string(50, ' ') + "▏   0%")));
}

TEST(WatchViewTest, OfSeveralRanksTheSlowestIsNamed) {
  WatchModel model;
  v1::WatchJobResponse job = JobMessage(v1::Job::RUNNING, 100, 400);
  for (const char* device : {"cuda:0", "cuda:1", "cuda:2", "cuda:3"}) {
    job.mutable_job()->add_devices(device);
  }
  model.Apply(job);
  model.Apply(Steps({StepOfRanks(100)}));
  EXPECT_THAT(Draw(model.state(), 80, 24),
              HasSubstr("\nslowest  rank 3 (cuda:3), compute 0.45 s, mean 0.375 s\n"));
  // Two parts of the cpu that this job divides into four have no names of their own.
  job.mutable_job()->mutable_devices()->DeleteSubrange(2, 2);
  model.Apply(job);
  EXPECT_THAT(Draw(model.state(), 80, 24), HasSubstr("\nslowest  rank 3, compute"));
  EXPECT_THAT(Draw(Running(), 80, 24), Not(HasSubstr("slowest")));
  v1::StepMetrics alone = StepOfRanks(1);
  alone.set_ranks(1);
  EXPECT_EQ(SlowestRankText(alone, v1::Job()), "");
}

TEST(WatchViewTest, FitsEverySize) {
  for (const Charset charset : {Charset::kAscii, Charset::kUtf8}) {
    for (int columns = 1; columns <= 130; ++columns) {
      for (const int rows : {1, 2, 5, 10, 16, 24, 60}) {
        const std::vector<std::string> lines =
            DrawWatch(Running(), {columns, rows}, absl::FromUnixSeconds(1000), charset);
        ASSERT_LE(static_cast<int>(lines.size()), rows);
        for (const std::string& line : lines) {
          ASSERT_LE(DisplayWidth(line), columns) << "[" << line << "]";
        }
      }
    }
  }
}

TEST(WatchViewTest, ASmallTerminalHasTheBarAndTheNumbers) {
  const std::string text = Draw(Running(), 40, 6);
  EXPECT_THAT(text, HasSubstr("100/400"));
  EXPECT_THAT(text, HasSubstr("loss     2.0000"));
  EXPECT_THAT(text, Not(HasSubstr("step 1 ")));
}

// Twelve rows beside the curve, which wants four.
TEST(WatchViewTest, ALowTerminalLosesTheLogLineByLineAndThenTheBars) {
  EXPECT_THAT(Draw(Running(), 80, 16),
              AllOf(HasSubstr("log      loading\n"), HasSubstr("\nh2d      [")));
  EXPECT_THAT(
      Draw(Running(), 80, 15),
      AllOf(Not(HasSubstr("loading")), HasSubstr("log      checkpoint of step 50 written\n")));
  EXPECT_THAT(Draw(Running(), 80, 14),
              AllOf(Not(HasSubstr("checkpoint of step 50")), HasSubstr("\nh2d      [")));
  EXPECT_THAT(Draw(Running(), 80, 13),
              AllOf(HasSubstr("\nlanes    h2d 10%  compute 90%  d2h 5%  update 20%  io 0%\n"),
                    HasSubstr("memory   pool "), Not(HasSubstr("h2d      ["))));
  EXPECT_EQ(DrawWatch(Running(), {80, 60}, absl::UnixEpoch(), Charset::kAscii).size(), 12u + 14)
      << "the curve does not grow further";
}

TEST(WatchViewTest, APausedJobInItsSecondAttempt) {
  WatchModel model;
  v1::WatchJobResponse message = JobMessage(v1::Job::PAUSED, 100, 400);
  message.mutable_job()->set_attempt_count(2);
  message.mutable_job()->set_reason_text("paused by anna");
  model.Apply(message);
  v1::StepMetrics step = Step(100, 2);
  step.mutable_lane_busy_seconds()->set_device_update(0.25);
  step.mutable_lane_busy_seconds()->set_collective(0.125);
  model.Apply(Steps({step}));
  EXPECT_THAT(Draw(model.state(), 80, 24),
              AllOf(HasSubstr("demo  jobs/a1  PAUSED  attempt 2\npaused by anna\n"),
                    HasSubstr("25%\n"), HasSubstr("\ngpu adam ["), HasSubstr("\nexchange ["),
                    HasSubstr("\nmemory   job 600 MiB  device 100 MiB\n"), Not(HasSubstr("ETA"))));
  message.mutable_job()->set_attempt_count(1);
  model.Apply(message);
  EXPECT_THAT(Draw(model.state(), 80, 24), HasSubstr("demo  jobs/a1  PAUSED\n"));
}

TEST(WatchViewTest, TheLogShowsItsLastFourLines) {
  WatchModel model;
  model.Apply(JobMessage(v1::Job::RUNNING));
  model.Apply(Log({"one", "two", "three", "four", "five", "six"}));
  EXPECT_EQ(Draw(model.state(), 80, 24),
            "demo  jobs/a1  RUNNING\nno step yet\n"
            "log      three\n         four\n         five\n         six\n");
}

TEST(WatchViewTest, BeforeAnythingIsKnown) {
  EXPECT_EQ(Draw(WatchState(), 80, 24), "connecting ...\n");
}

TEST(WatchViewTest, AQueuedJobSaysWhy) {
  WatchModel model;
  v1::WatchJobResponse message = JobMessage(v1::Job::QUEUED);
  v1::QueueStatus* const queue = message.mutable_job()->mutable_queue();
  queue->set_position(2);
  queue->set_text("another job has the device");
  queue->mutable_predicted_start_time()->set_seconds(1090);
  model.Apply(message);
  EXPECT_EQ(Draw(model.state(), 80, 24),
            "demo  jobs/a1  QUEUED\n"
            "number 2 in the queue; another job has the device; starts in about 1m30s\n"
            "no step yet\n");
  // A start that is due is not told, nor a place that is not known.
  queue->set_position(0);
  EXPECT_EQ(SituationText(message.job(), absl::FromUnixSeconds(1090)),
            "another job has the device");
}

TEST(WatchViewTest, APausedJobSaysWhyARunningOneDoesNot) {
  v1::Job job = JobMessage(v1::Job::PAUSED).job();
  job.set_reason_text("paused by anna; its host memory is kept");
  EXPECT_EQ(SituationText(job, absl::UnixEpoch()), job.reason_text());
  job.set_state(v1::Job::RUNNING);
  job.set_reason_text("step 1 of 400 is the next");
  EXPECT_EQ(SituationText(job, absl::UnixEpoch()), "");
}

TEST(WatchViewTest, TheServerIsAway) {
  WatchModel model;
  model.Apply(JobMessage(v1::Job::RUNNING, 10, 100));
  model.Apply(StreamLost{WatchStream::kJob, "nobody listens", absl::FromUnixSeconds(1003)});
  EXPECT_THAT(Draw(model.state(), 80, 24),
              HasSubstr("the server is away, trying again in 3s: nobody listens\n"));
  EXPECT_THAT(Draw(model.state(), 80, 24), HasSubstr("10/100"));
}

TEST(WatchViewTest, LinesOfOthersCannotDriveTheTerminal) {
  WatchModel model;
  v1::WatchJobResponse message = JobMessage(v1::Job::FAILED);
  message.mutable_job()->set_display_name("a\x1b[2Jb");
  message.mutable_job()->set_reason_text("bad\nline");
  model.Apply(message);
  model.Apply(Log({"\x1b]0;title\a"}));
  const std::string text = Draw(model.state(), 80, 24);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("bad?line"));
}

TEST(WatchViewTest, ClosingLines) {
  v1::Job job = JobMessage(v1::Job::SUCCEEDED, 400, 400).job();
  job.mutable_start_time()->set_seconds(100);
  job.mutable_end_time()->set_seconds(233);
  EXPECT_EQ(ClosingLine(job),
            "demo has succeeded at step 400 of 400, 2m13s after its start: "
            "jobs/a1");
  job = JobMessage(v1::Job::FAILED).job();
  job.set_reason_text("the loss is NaN");
  EXPECT_EQ(ClosingLine(job), "demo has failed (the loss is NaN): jobs/a1");
  EXPECT_EQ(ClosingLine(JobMessage(v1::Job::CANCELLED, 3, 9).job()),
            "demo has been cancelled at step 3 of 9: jobs/a1");
  EXPECT_EQ(ClosingLine(JobMessage(v1::Job::RUNNING, 3, 9).job()),
            "demo is RUNNING and goes on at step 3 of 9: jobs/a1");
  job = JobMessage(v1::Job::CANCELLED).job();
  job.set_reason_text("cancelled by anna");
  EXPECT_EQ(ClosingLine(job), "demo has been cancelled (cancelled by anna): jobs/a1");
  job.mutable_start_time()->set_seconds(100);
  job.set_state(v1::Job::PAUSED);
  EXPECT_EQ(ClosingLine(job), "demo is PAUSED and goes on: jobs/a1");
}

}  // namespace
}  // namespace megatrain::client

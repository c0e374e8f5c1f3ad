// Requests to jobs, at every point of their lives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/worker/engine_job_fixture.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class EngineJobControlTest : public EngineJobRunnerTest {};

TEST_F(EngineJobControlTest, RefusesWhatDoesNotFitTheState) {
  EXPECT_EQ(runner_->Ask("a", RunWish::kPause).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Ask("a", RunWish::kResume).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Ask("a", RunWish::kCancel).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Ask("a", RunWish::kCheckpoint).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Ask("a", RunWish::kStop).code(), absl::StatusCode::kNotFound);
  const JobSpec spec = Spec("active"), other_spec = Spec("other_active");
  ObservedJob job("a"), other("b"), third("c");
  job.on_running = [&](int64_t) { ASSERT_TRUE(runner_->Ask("a", RunWish::kPause).ok()); };
  ASSERT_TRUE(Start(job, spec).ok());
  EXPECT_EQ(Start(job, spec).code(), absl::StatusCode::kAlreadyExists);
  job.WaitFor("paused");
  EXPECT_EQ(Start(job, spec).code(), absl::StatusCode::kAlreadyExists);
  // Beside the paused one another may run, and then the paused one may not be resumed.
  other.on_running = [&](int64_t first_step) {
    if (first_step != 1) return;
    EXPECT_EQ(runner_->Ask("a", RunWish::kResume).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Start(third, other_spec).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(third.Events().empty()) << "a start that is refused is told to nobody";
  };
  EXPECT_EQ(Run(other, other_spec).kind, RunEnd::Kind::kFinished);
  job.on_running = nullptr;
  EXPECT_TRUE(runner_->Ask("a", RunWish::kResume).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  EXPECT_EQ(job.Losses(), other.Losses());
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(other_spec));
  EXPECT_EQ(runner_->Ask("a", RunWish::kPause).code(), absl::StatusCode::kNotFound);
  ExpectPoolWhole();
}

// Every request at every point that the job tells of: while each thing is prepared, when steps
// begin, after each step, while paused.
TEST_F(EngineJobControlTest, EveryRequestAtEveryPoint) {
  const JobSpec plain = Spec("plain");
  ObservedJob undisturbed("plain");
  ASSERT_EQ(Run(undisturbed, plain).kind, RunEnd::Kind::kFinished);
  const auto expected_files = CheckpointTensorFiles(plain);
  const std::vector<std::string> points = {"planning",
                                           "reading and tokenising the data",
                                           "verifying the checkpoint to resume from",
                                           "loading the model",
                                           "running 1",
                                           "step 1",
                                           "step 2",
                                           "paused"};
  const std::vector<std::string> requests = {"pause", "release", "cancel", "checkpoint", "stop"};
  int number = 0;
  for (const std::string& point : points) {
    for (const std::string& request : requests) {
      SCOPED_TRACE(absl::StrCat(request, " at ", point));
      const JobSpec spec = Spec("requested");
      ObservedJob job(absl::StrCat("job", number++));
      bool asked = false;
      const auto reached = [&](const std::string& now) {
        if (point == "paused" && now == "step 1") {
          EXPECT_TRUE(runner_->Ask(job.id(), RunWish::kPause).ok());
        }
        if (now != point || asked) return;
        asked = true;
        absl::Status status;
        if (request == "pause") status = runner_->Ask(job.id(), RunWish::kPause);
        if (request == "release") status = runner_->Ask(job.id(), RunWish::kRelease);
        if (request == "cancel") status = runner_->Ask(job.id(), RunWish::kCancel);
        if (request == "checkpoint") status = runner_->Ask(job.id(), RunWish::kCheckpoint);
        if (request == "stop") status = runner_->Ask(job.id(), RunWish::kStop);
        EXPECT_TRUE(status.ok()) << status;
      };
      job.on_preparing = reached;
      job.on_running = [&](int64_t first) { reached(absl::StrCat("running ", first)); };
      job.on_step = [&](int64_t step) { reached(absl::StrCat("step ", step)); };
      job.on_paused = [&](const TrainingPause& pause) {
        EXPECT_TRUE(pause.status.ok()) << pause.status;
        reached("paused");
        if (request == "pause" || request == "checkpoint") {
          EXPECT_TRUE(runner_->Ask(job.id(), RunWish::kResume).ok());
        }
      };
      const RunEnd end = Run(job, spec);
      EXPECT_TRUE(asked);
      EXPECT_TRUE(end.status.ok()) << end.status;
      ExpectPoolWhole();
      if (request == "cancel") {
        EXPECT_EQ(end.kind, RunEnd::Kind::kCancelled);
        EXPECT_TRUE(CheckpointTensorFiles(spec).empty());
        continue;
      }
      if (request == "release") {
        EXPECT_EQ(end.kind, RunEnd::Kind::kReleased);
      }
      if (request == "stop") {
        EXPECT_EQ(end.kind, RunEnd::Kind::kStopped);
      }
      if (request == "pause") {
        EXPECT_THAT(job.Events(), Contains("paused"));
        EXPECT_THAT(job.Events(), Contains(HasSubstr("running")).Times(2));
      }
      if (request == "checkpoint") {
        EXPECT_THAT(job.Events(), Contains(HasSubstr("checkpoint")).Times(2));
      }
      std::map<int64_t, double> losses = job.Losses();
      if (end.kind != RunEnd::Kind::kFinished) {
        ObservedJob rest(job.id());
        EXPECT_EQ(Run(rest, spec).kind, RunEnd::Kind::kFinished);
        for (const auto& [step, loss] : rest.Losses()) {
          EXPECT_FALSE(losses.contains(step)) << "it went on where it was saved";
          losses[step] = loss;
        }
      }
      EXPECT_EQ(losses, undisturbed.Losses());
      EXPECT_TRUE(CheckpointTensorFiles(spec) == expected_files);
      EXPECT_EQ(Metrics(job.id()).size(), 4u);
    }
  }
}

TEST_F(EngineJobControlTest, ANextJobStartsFromTheEndOfTheLast) {
  const JobSpec spec = Spec("chain_a"), next_spec = Spec("chain_b");
  ObservedJob job("a"), next("b");
  job.on_ended = [&] { EXPECT_TRUE(Start(next, next_spec).ok()); };
  EXPECT_EQ(Run(job, spec).kind, RunEnd::Kind::kFinished);
  EXPECT_EQ(next.End().kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobControlTest, RequestsFromManyThreadsAtAnyTime) {
  const JobSpec plain = Spec("plain_threads"), spec = Spec("threads");
  ObservedJob undisturbed("plain"), job("a");
  ASSERT_EQ(Run(undisturbed, plain).kind, RunEnd::Kind::kFinished);
  std::atomic<bool> over{false};
  job.on_ended = [&] { over = true; };
  ASSERT_TRUE(Start(job, spec).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!over) {
        if (t == 0) runner_->Ask("a", RunWish::kPause).IgnoreError();
        if (t == 1) runner_->Ask("a", RunWish::kCheckpoint).IgnoreError();
        runner_->Ask("a", RunWish::kResume).IgnoreError();
        std::this_thread::yield();
      }
    });
  }
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(job.Losses(), undisturbed.Losses());
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(plain));
}

}  // namespace
}  // namespace megatrain

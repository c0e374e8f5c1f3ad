// Jobs from their start to their end, and what they leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/server/worker/engine_job_fixture.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

TEST_F(EngineJobRunnerTest, RunsJobsOneAfterTheOtherOnAWarmPool) {
  const JobSpec first_spec = Spec("first"), second_spec = Spec("second");
  ObservedJob first("a"), second("b");
  std::set<std::string> activities;
  first.on_preparing = [&](const std::string& activity) { activities.insert(activity); };
  EXPECT_EQ(Run(first, first_spec).kind, RunEnd::Kind::kFinished);
  ExpectPoolWhole();
  EXPECT_EQ(Run(second, second_spec).kind, RunEnd::Kind::kFinished);
  ExpectPoolWhole();
  EXPECT_THAT(first.Events(), ElementsAre("running 1", "step 1", "step 2", "step 3", "step 4",
                                          "checkpoint 4", "ended"));
  EXPECT_EQ(second.Events(), first.Events());
  EXPECT_EQ(second.Losses(), first.Losses());
  EXPECT_THAT(activities, IsSupersetOf({"planning", "loading the model"}));
  EXPECT_TRUE(CheckpointTensorFiles(second_spec) == CheckpointTensorFiles(first_spec));
  EXPECT_EQ(Metrics("a").size(), 4u);
  EXPECT_THAT(first.Messages(), Contains(HasSubstr("saved ")));
}

// The process ends; what was recorded after the checkpoint is superseded when its successor runs
// the job.
TEST_F(EngineJobRunnerTest, RecordsAfterTheCheckpointAreSuperseded) {
  JobSpec spec = Spec("fall_back");
  spec.checkpoint.every_steps = 2;
  ObservedJob job("a");
  job.on_step = [&](int64_t step) {
    if (step == 3) {
      EXPECT_TRUE(runner_->Cancel("a").ok());
    }  // as lost as by kill -9
  };
  EXPECT_EQ(Run(job, spec).kind, RunEnd::Kind::kCancelled);
  ASSERT_THAT(job.Events(), Contains("step 3"));
  // Whether the checkpoint of step 2 was finished depends on the disk.
  const bool saved = !CheckpointTensorFiles(spec).empty();
  ObservedJob again("a");
  EXPECT_EQ(Run(again, spec).kind, RunEnd::Kind::kFinished);
  EXPECT_EQ(again.Events()[0], saved ? "running 3" : "running 1");
  std::vector<int64_t> superseded, steps;
  int64_t markers = 0;
  for (const LogRecord& record : Metrics("a")) {
    if (record.kind == LogRecord::Kind::kFellBack) ++markers;
    if (record.kind == LogRecord::Kind::kText)
      (record.superseded ? superseded : steps).push_back(record.step);
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(superseded.front(), saved ? 3 : 1);
  EXPECT_EQ(markers, 1);
}

TEST_F(EngineJobRunnerTest, AJobWhoseSubmittersFilesCannotBeHadFails) {
  EngineJobRunnerOptions options;
  options.files = [](int64_t, const std::string&) -> absl::StatusOr<std::shared_ptr<FileSystem>> {
    return absl::NotFoundError("there is no account");
  };
  ObservedJob job("gone");
  EngineJobRunner runner(host_.get(), options);
  ASSERT_TRUE(runner.Start({"gone", Spec("gone"), nullptr}, job.Callbacks()).ok());
  const RunEnd end = job.End();
  EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
  EXPECT_EQ(end.failure, RunFailure::kInvalidInput);
  EXPECT_EQ(end.status.message(), "there is no account");
}

TEST_F(EngineJobRunnerTest, AFullDiskPausesWithItsReason) {
  const JobSpec spec = Spec("full");
  ObservedJob job("a");
  disk_.FillAfter(0);
  RunPause why;
  job.on_paused = [&](const RunPause& pause) { why = pause; };
  ASSERT_TRUE(Start(job, spec).ok());
  job.WaitFor("paused itself");
  EXPECT_EQ(why.failure, RunFailure::kDiskFull);
  EXPECT_EQ(why.directory, spec.checkpoint.directory);
  EXPECT_GT(why.disk_bytes, 0);
  disk_.MakeRoom();
  EXPECT_TRUE(runner_->Resume("a").ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobRunnerTest, AStopThatCannotSaveSaysSo) {
  const JobSpec spec = Spec("unsaved_stop");
  ObservedJob job("a");
  job.on_step = [&](int64_t step) {
    if (step == 1) {
      disk_.FillAfter(0);
      EXPECT_TRUE(runner_->Stop("a").ok());
    }
  };
  const RunEnd end = Run(job, spec);
  disk_.MakeRoom();
  EXPECT_EQ(end.kind, RunEnd::Kind::kStopped);
  EXPECT_EQ(end.failure, RunFailure::kDiskFull);
}

TEST_F(EngineJobRunnerTest, SaysWhyARunFailed) {
  const auto failure = [&](const std::string& id, const std::function<void(JobSpec&)>& change) {
    JobSpec spec = Spec("failing");
    change(spec);
    ObservedJob job(id);
    const RunEnd end = Run(job, spec);
    EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
    EXPECT_FALSE(end.status.ok());
    EXPECT_THAT(job.Messages(), Contains(std::string(end.status.message())));
    ExpectPoolWhole();
    return end.failure;
  };
  EXPECT_EQ(failure("model", [](JobSpec& s) { s.model.path = "/nowhere"; }),
            RunFailure::kInvalidInput);
  EXPECT_EQ(failure("data", [](JobSpec& s) { s.data.train[0].path = "/nowhere.bin"; }),
            RunFailure::kInvalidInput);
  EXPECT_EQ(failure("device", [](JobSpec& s) { s.engine.device = "cuda:3"; }),
            RunFailure::kInvalidInput);
  EXPECT_EQ(failure("large", [](JobSpec& s) { s.engine.host_memory = 4096; }),
            RunFailure::kDoesNotFit);
  EXPECT_EQ(failure("wild",
                    [](JobSpec& s) {
                      s.optimizer.learning_rate = 1e30;
                      s.training.precision = Precision::kFp32;
                    }),
            RunFailure::kNonFinite);
  EXPECT_EQ(
      failure("damaged",
              [](JobSpec& s) {
                std::filesystem::create_directories(s.checkpoint.directory + "/step-00000001");
              }),
      RunFailure::kCheckpointDamaged);
  // None of these is in the way of the next.
  ObservedJob job("sound");
  EXPECT_EQ(Run(job, Spec("sound")).kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobRunnerTest, AJobThatPausedJobsLeaveNoRoomForSaysSo) {
  const JobSpec spec = Spec("holder"), other_spec = Spec("waiter");
  const auto plan = PlanTraining(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EngineHostOptions options;
  options.threads = 2;
  auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE((*host)->ReservePool(plan->pool_bytes + 8192, nullptr, nullptr).ok());
  EngineJobRunner runner(host->get(), {});
  ObservedJob holder("a"), waiter("b"), again("b");
  holder.on_running = [&](int64_t first_step) {
    if (first_step == 1) {
      EXPECT_TRUE(runner.Pause("a", false).ok());
    }
  };
  ASSERT_TRUE(runner.Start({"a", spec, nullptr}, holder.Callbacks()).ok());
  holder.WaitFor("paused");
  ASSERT_TRUE(runner.Start({"b", other_spec, nullptr}, waiter.Callbacks()).ok());
  EXPECT_EQ(waiter.End().failure, RunFailure::kPoolBusy);
  EXPECT_TRUE(runner.Pause("a", true).ok());
  EXPECT_EQ(holder.End().kind, RunEnd::Kind::kReleased);
  ASSERT_TRUE(runner.Start({"b", other_spec, nullptr}, again.Callbacks()).ok());
  EXPECT_EQ(again.End().kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobRunnerTest, ItsEndCancelsWhatRunsAndWhatIsPaused) {
  ObservedJob paused("a"), running("b");
  paused.on_running = [&](int64_t) { EXPECT_TRUE(runner_->Pause("a", false).ok()); };
  ASSERT_TRUE(Start(paused, Spec("end_paused")).ok());
  paused.WaitFor("paused");
  ASSERT_TRUE(Start(running, Spec("end_running")).ok());
  runner_.reset();
  EXPECT_EQ(paused.End().kind, RunEnd::Kind::kCancelled);
  running.End();  // cancelled, or done in time
  ExpectPoolWhole();
}

TEST_F(EngineJobRunnerTest, ExportsBesideARunningJob) {
  const JobSpec spec = Spec("exported"), other_spec = Spec("beside_export");
  ObservedJob job("a"), other("b");
  ASSERT_EQ(Run(job, spec).kind, RunEnd::Kind::kFinished);
  const std::string directory = FreshDirectory("export_out") + "/model";
  ASSERT_TRUE(Start(other, other_spec).ok());
  Mutex mutex;
  CondVar changed;
  std::vector<absl::Status> done;
  const auto note = [&](const absl::Status& status) {
    MutexLock lock(&mutex);
    done.push_back(status);
    changed.NotifyAll();
  };
  const auto files = *FilesOfProcess()(-1, "");
  runner_->Export(spec.checkpoint.directory + "/step-00000004", directory, files, note);
  runner_->Export("/nowhere/step-00000004", directory + "2", files, note);
  EXPECT_EQ(other.End().kind, RunEnd::Kind::kFinished);
  MutexLock lock(&mutex);
  while (done.size() < 2) changed.Wait(&mutex);
  EXPECT_TRUE(done[0].ok()) << done[0];
  EXPECT_EQ(done[1].code(), absl::StatusCode::kNotFound) << done[1];
  EXPECT_TRUE(std::filesystem::exists(directory + "/model.safetensors"));
}

TEST_F(EngineJobRunnerTest, TheWatchdogIsToldWhatTheEngineDoes) {
  // A clock that leaps: a step that the clock says took an hour is a stall.
  std::atomic<double> now{0};
  std::atomic<int> stalls{0};
  EngineJobRunnerOptions options;
  options.watchdog.now = [&now] { return now.load(); };
  options.watchdog.poll_seconds = 0.001;
  options.stalled = [&stalls](const std::string& job_id, const std::string& why) {
    EXPECT_EQ(job_id, "a");
    EXPECT_THAT(why, HasSubstr("has not advanced"));
    ++stalls;
  };
  EngineJobRunner runner(host_.get(), options);
  ObservedJob job("a");
  job.on_step = [&](int64_t step) {
    if (step != 2) return;
    now = now + 3600;
    while (stalls == 0) std::this_thread::yield();
    EXPECT_TRUE(runner.Pause("a", false).ok());
  };
  ASSERT_TRUE(runner.Start({"a", Spec("watched"), nullptr}, job.Callbacks()).ok());
  job.WaitFor("paused");
  now = now + 1e9;  // a pause may last
  EXPECT_TRUE(runner.Resume("a").ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  EXPECT_EQ(stalls, 1);
}

}  // namespace
}  // namespace megatrain

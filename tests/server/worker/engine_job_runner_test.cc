// Jobs from their start to their end, and what they leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/memory/pool_busy.h"
#include "server/worker/job_failure.h"
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
      EXPECT_TRUE(runner_->Ask("a", RunWish::kCancel).ok());
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

TEST_F(EngineJobRunnerTest, AJobWhoseSubmittersFilesCannotBeHadFailsOrIsNotStarted) {
  const auto end_of = [&](const absl::Status& status) {
    EngineJobRunnerOptions options;
    options.files = [&](int64_t,
                        const std::string&) -> absl::StatusOr<std::shared_ptr<FileSystem>> {
      return status;
    };
    ObservedJob job("gone");
    options.observers = {&jobs_};
    EngineJobRunner runner(host_.get(), options);
    EXPECT_TRUE(Start(runner, job, Spec("gone")).ok());
    return job.End();
  };
  const RunEnd gone = end_of(absl::NotFoundError("there is no account"));
  EXPECT_EQ(gone.kind, RunEnd::Kind::kFailed);
  EXPECT_EQ(FailureOf(gone.status), JobReason::kInvalidInput);
  EXPECT_EQ(gone.status.message(), "there is no account");
  const RunEnd silent = end_of(absl::UnavailableError("accounts cannot be looked up"));
  EXPECT_EQ(silent.kind, RunEnd::Kind::kNotStarted);
  EXPECT_EQ(silent.status.message(), "accounts cannot be looked up");
}

TEST_F(EngineJobRunnerTest, AJobThatIsStoppedBeforeItHasItsFilesIsStopped) {
  EngineJobRunner* runner_of_job = nullptr;
  EngineJobRunnerOptions options;
  options.observers = {&jobs_};
  options.files = [&](int64_t,
                      const std::string& id) -> absl::StatusOr<std::shared_ptr<FileSystem>> {
    EXPECT_TRUE(runner_of_job->Ask(id, RunWish::kStop).ok());
    return absl::UnavailableError("accounts cannot be looked up");
  };
  EngineJobRunner runner(host_.get(), options);
  runner_of_job = &runner;
  ObservedJob job("a");
  ASSERT_TRUE(Start(runner, job, Spec("stopped")).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kStopped);
  EXPECT_EQ(job.End().status.message(), "accounts cannot be looked up");
}

TEST_F(EngineJobRunnerTest, WhatIsThrownFailsTheJobAlone) {
  EngineJobRunnerOptions options;
  options.observers = {&jobs_};
  options.files = [](int64_t, const std::string&) -> absl::StatusOr<std::shared_ptr<FileSystem>> {
    throw std::runtime_error("out of something");
  };
  EngineJobRunner runner(host_.get(), options);
  ObservedJob job("a");
  ASSERT_TRUE(Start(runner, job, Spec("thrown")).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFailed);
  EXPECT_EQ(FailureOf(job.End().status), JobReason::kTrainingError);
  EXPECT_THAT(std::string(job.End().status.message()), HasSubstr("out of something"));
}

// Steps whose records are lost would be missed for good.
TEST_F(EngineJobRunnerTest, AFullDiskUnderTheRecordsPausesToo) {
  const auto records = *records_.Open("a");
  std::filesystem::create_symlink("/dev/full", records->directory() + "/metrics/" + SegmentName(1));
  ObservedJob job("a");
  TrainingPause why;
  job.on_paused = [&](const TrainingPause& pause) { why = pause; };
  ASSERT_TRUE(Start(job, Spec("records_full")).ok());
  job.WaitFor("paused itself");
  EXPECT_EQ(FailureOf(why.status), JobReason::kDiskFull) << why.status;
  EXPECT_EQ(why.directory, records->directory());
  EXPECT_GT(why.disk_bytes, 0);
  EXPECT_THAT(job.Messages(), Contains(HasSubstr("metrics and log cannot be written")));
  EXPECT_TRUE(runner_->Ask("a", RunWish::kResume).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobRunnerTest, AFullDiskPausesWithItsReason) {
  const JobSpec spec = Spec("full");
  ObservedJob job("a");
  disk_.FillAfter(0);
  TrainingPause why;
  job.on_paused = [&](const TrainingPause& pause) { why = pause; };
  ASSERT_TRUE(Start(job, spec).ok());
  job.WaitFor("paused itself");
  EXPECT_EQ(FailureOf(why.status), JobReason::kDiskFull);
  EXPECT_EQ(why.directory, spec.checkpoint.directory);
  EXPECT_GT(why.disk_bytes, 0);
  disk_.MakeRoom();
  // The device is free meanwhile.
  ObservedJob other("b");
  ASSERT_TRUE(Start(other, Spec("beside_full")).ok());
  EXPECT_EQ(other.End().kind, RunEnd::Kind::kFinished);
  EXPECT_TRUE(runner_->Ask("a", RunWish::kResume).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobRunnerTest, AStopThatCannotSaveSaysSo) {
  const JobSpec spec = Spec("unsaved_stop");
  ObservedJob job("a");
  job.on_step = [&](int64_t step) {
    if (step == 1) {
      disk_.FillAfter(0);
      EXPECT_TRUE(runner_->Ask("a", RunWish::kStop).ok());
    }
  };
  const RunEnd end = Run(job, spec);
  disk_.MakeRoom();
  EXPECT_EQ(end.kind, RunEnd::Kind::kStopped);
  EXPECT_EQ(FailureOf(end.status), JobReason::kDiskFull);
}

TEST(FailureOfTest, EveryErrorHasItsReason) {
  using Code = absl::StatusCode;
  const std::pair<Code, JobReason> cases[] = {
      {Code::kInvalidArgument, JobReason::kInvalidInput},
      {Code::kNotFound, JobReason::kInvalidInput},
      {Code::kFailedPrecondition, JobReason::kInvalidInput},
      {Code::kOutOfRange, JobReason::kInvalidInput},
      {Code::kUnimplemented, JobReason::kInvalidInput},
      {Code::kPermissionDenied, JobReason::kInvalidInput},
      {Code::kResourceExhausted, JobReason::kDoesNotFit},
      {Code::kAborted, JobReason::kNonFinite},
      {Code::kDataLoss, JobReason::kCheckpointDamaged},
      {Code::kInternal, JobReason::kTrainingError},
      {Code::kUnknown, JobReason::kTrainingError},
      {Code::kUnavailable, JobReason::kTrainingError},
  };
  for (const auto& [code, reason] : cases) {
    EXPECT_EQ(FailureOf(absl::Status(code, "")), reason) << absl::StatusCodeToString(code);
  }
  EXPECT_EQ(FailureOf(DiskFullError("/data is full")), JobReason::kDiskFull);
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
    return FailureOf(end.status);
  };
  EXPECT_EQ(failure("model", [](JobSpec& s) { s.model.path = "/nowhere"; }),
            JobReason::kInvalidInput);
  EXPECT_EQ(failure("data", [](JobSpec& s) { s.data.train[0].path = "/nowhere.bin"; }),
            JobReason::kInvalidInput);
  EXPECT_EQ(failure("device", [](JobSpec& s) { s.engine.device = "cuda:3"; }),
            JobReason::kInvalidInput);
  EXPECT_EQ(failure("large", [](JobSpec& s) { s.engine.host_memory = 4096; }),
            JobReason::kDoesNotFit);
  EXPECT_EQ(failure("wild",
                    [](JobSpec& s) {
                      s.optimizer.learning_rate = 1e30;
                      s.training.precision = Precision::kFp32;
                    }),
            JobReason::kNonFinite);
  EXPECT_EQ(
      failure("damaged",
              [](JobSpec& s) {
                std::filesystem::create_directories(s.checkpoint.directory + "/step-00000001");
              }),
      JobReason::kCheckpointDamaged);
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
  EngineJobRunnerOptions runner_options;
  runner_options.observers = {&jobs_};
  EngineJobRunner runner(host->get(), runner_options);
  ObservedJob holder("a"), waiter("b"), again("b");
  holder.on_running = [&](int64_t first_step) {
    if (first_step == 1) {
      EXPECT_TRUE(runner.Ask("a", RunWish::kPause).ok());
    }
  };
  ASSERT_TRUE(Start(runner, holder, spec).ok());
  holder.WaitFor("paused");
  ASSERT_TRUE(Start(runner, waiter, other_spec).ok());
  const RunEnd busy = waiter.End();
  EXPECT_EQ(busy.kind, RunEnd::Kind::kFailed);
  EXPECT_TRUE(IsPoolBusy(busy.status)) << busy.status;
  EXPECT_TRUE(runner.Ask("a", RunWish::kRelease).ok());
  EXPECT_EQ(holder.End().kind, RunEnd::Kind::kReleased);
  ASSERT_TRUE(Start(runner, again, other_spec).ok());
  EXPECT_EQ(again.End().kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobRunnerTest, ItsEndCancelsWhatRunsAndWhatIsPaused) {
  ObservedJob paused("a"), running("b");
  paused.on_running = [&](int64_t) { EXPECT_TRUE(runner_->Ask("a", RunWish::kPause).ok()); };
  ASSERT_TRUE(Start(paused, Spec("end_paused")).ok());
  paused.WaitFor("paused");
  ASSERT_TRUE(Start(running, Spec("end_running")).ok());
  runner_.reset();
  EXPECT_EQ(paused.End().kind, RunEnd::Kind::kCancelled);
  running.End();  // cancelled, or done in time
  ExpectPoolWhole();
}

// Notes what it is told, and how many steps are recorded by then.
class Order : public RunObserver {
 public:
  Order(std::string name, std::function<size_t()> recorded, std::vector<std::string>* notes)
      : name_(std::move(name)), recorded_(std::move(recorded)), notes_(notes) {}

  void Tell(const RunRequest&, const JobRunEvent& event) override {
    if (const auto* const record = std::get_if<StepRecord>(&event)) {
      notes_->push_back(absl::StrCat(name_, ": step ", record->step, " of ", recorded_()));
    }
    if (std::holds_alternative<RunEnd>(event)) notes_->push_back(name_ + ": end");
  }

 private:
  const std::string name_;
  const std::function<size_t()> recorded_;
  std::vector<std::string>* const notes_;
};

TEST_F(EngineJobRunnerTest, ObserversAreToldInTheirOrderWhenTheRecordsHaveIt) {
  std::vector<std::string> notes;
  const auto recorded = [this] { return Metrics("a").size(); };
  Order first("first", recorded, &notes), second("second", recorded, &notes);
  EngineJobRunnerOptions options;
  options.observers = {&first, &second, &jobs_};
  EngineJobRunner runner(host_.get(), options);
  ObservedJob job("a");
  jobs_.Add(&job);
  ASSERT_TRUE(runner.Start({"a", Spec("order"), *records_.Open("a")}).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  EXPECT_THAT(
      notes, ElementsAre("first: step 1 of 1", "second: step 1 of 1", "first: step 2 of 2",
                         "second: step 2 of 2", "first: step 3 of 3", "second: step 3 of 3",
                         "first: step 4 of 4", "second: step 4 of 4", "first: end", "second: end"));
}

TEST_F(EngineJobRunnerTest, TheWatchdogIsToldWhatTheEngineDoes) {
  // A clock that leaps: a step that the clock says took an hour is a stall.
  std::atomic<double> now{0};
  std::atomic<int> stalls{0};
  EngineJobRunnerOptions options;
  options.watchdog.now = [&now] { return now.load(); };
  options.watchdog.poll_seconds = 0.001;
  options.watchdog.stopped_seconds = 1e12;
  options.stalled = [&stalls](const std::string& job_id, const std::string& why) {
    EXPECT_EQ(job_id, "a");
    EXPECT_THAT(why, HasSubstr("has not advanced"));
    ++stalls;
  };
  options.observers = {&jobs_};
  EngineJobRunner runner(host_.get(), options);
  ObservedJob job("a");
  job.on_step = [&](int64_t step) {
    if (step != 2) return;
    now = now + 3600;
    while (stalls == 0) std::this_thread::yield();
    EXPECT_TRUE(runner.Ask("a", RunWish::kPause).ok());
  };
  ASSERT_TRUE(Start(runner, job, Spec("watched")).ok());
  job.WaitFor("paused");
  now = now + 1e9;  // a pause may last
  EXPECT_TRUE(runner.Ask("a", RunWish::kResume).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  EXPECT_EQ(stalls, 1);
}

// `share` is asked whenever the watchdog looks.
TEST_F(EngineJobRunnerTest, NothingIsExpectedOfARunThatHasEnded) {
  std::atomic<double> now{0};
  std::atomic<int> looks{0}, stalls{0};
  EngineJobRunnerOptions options;
  options.watchdog.now = [&now] { return now.load(); };
  options.watchdog.share = [&looks](double seconds) {
    ++looks;
    return seconds;
  };
  options.watchdog.poll_seconds = 0.001;
  options.watchdog.stopped_seconds = 1e12;
  options.stalled = [&stalls](const std::string&, const std::string&) { ++stalls; };
  options.observers = {&jobs_};
  EngineJobRunner runner(host_.get(), options);
  ObservedJob job("a");
  ASSERT_TRUE(Start(runner, job, Spec("ended")).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  now = now + 1e9;  // no other job comes for long
  const int before = looks;
  while (looks < before + 3) std::this_thread::yield();
  EXPECT_EQ(stalls, 0);
}

TEST_F(EngineJobRunnerTest, AJobThatStopsEarlyHasFinished) {
  JobSpec spec = Spec("early");
  spec.optimizer.learning_rate = 0;  // the first evaluation stays the best
  spec.data.eval_fraction = 0.1;
  spec.training.eval_every = 1;
  spec.training.stop_after_worse = 1;
  ObservedJob job("a");
  const RunEnd end = Run(job, spec);
  EXPECT_EQ(end.kind, RunEnd::Kind::kFinished) << end.status;
  EXPECT_THAT(end.early_reason, HasSubstr("training.stop_after_worse: 1"));
  EXPECT_THAT(job.Events(), ElementsAre("running 1", "step 1", "step 2", "checkpoint 2", "ended"));
}

// A watchdog reads its clock when it is made, for each event that it follows, and at the end; and
// whenever it is told that the job is alive.
TEST_F(EngineJobRunnerTest, TheWatchdogIsToldOfWorkBetweenEvents) {
  struct Counter : RunObserver {
    void Tell(const RunRequest&, const JobRunEvent& event) override {
      followed += std::holds_alternative<TrainingActivity>(event) ||
                  std::holds_alternative<StepsBegin>(event) ||
                  std::holds_alternative<StepRecord>(event);
    }
    std::atomic<int> followed{0};
  };
  Counter counter;
  std::atomic<int> reads{0};
  EngineJobRunnerOptions options;
  options.observers = {&counter, &jobs_};
  options.watchdog.poll_seconds = 1e6;  // never looks
  options.watchdog.now = [&reads] { return static_cast<double>(++reads); };
  EngineJobRunner runner(host_.get(), options);
  ObservedJob job("a");
  ASSERT_TRUE(Start(runner, job, Spec("alive")).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  EXPECT_GT(counter.followed, 0);
  EXPECT_GT(reads, counter.followed + 2);
}

}  // namespace
}  // namespace megatrain

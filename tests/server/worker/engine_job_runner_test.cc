// Real jobs of a tiny model on the cpu device, through the interface that the scheduler drives.
#include "server/worker/engine_job_runner.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/worker/job_records.h"
#include "tests/engine/full_disk_file_system.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr int64_t kSteps = 4;
constexpr int64_t kPoolBytes = 64 * kMiB;

JobSpec Spec(const std::string& directory) {
  JobSpec spec =
      CurveJob(LoadModelReference("qwen2"), Precision::kBf16, true, FreshDirectory(directory));
  spec.training.steps = kSteps;
  return spec;
}

// What a job told, and hooks that answer on the job's own thread.
class Job {
 public:
  explicit Job(std::string id) : id_(std::move(id)) {}

  std::function<void(const std::string& activity)> on_preparing;
  std::function<void(int64_t first_step)> on_running;
  std::function<void(int64_t step)> on_step;
  std::function<void(const RunPause&)> on_paused;
  std::function<void()> on_ended;

  RunCallbacks Callbacks() {
    RunCallbacks callbacks;
    callbacks.preparing = [this](const std::string& activity, double fraction) {
      EXPECT_LE(fraction, 1.0);
      if (on_preparing) on_preparing(activity);
    };
    callbacks.running = [this](int64_t first_step, int64_t total_steps) {
      EXPECT_EQ(total_steps, kSteps);
      Tell(absl::StrCat("running ", first_step));
      if (on_running) on_running(first_step);
    };
    callbacks.step = [this](const StepRecord& record) {
      {
        MutexLock lock(&mutex_);
        losses_[record.step] = record.loss;
      }
      Tell(absl::StrCat("step ", record.step));
      if (on_step) on_step(record.step);
    };
    callbacks.message = [this](const std::string& line) {
      MutexLock lock(&mutex_);
      messages_.push_back(line);
    };
    callbacks.checkpoint = [this](int64_t step, const std::string& directory, double seconds) {
      EXPECT_GE(seconds, 0);
      EXPECT_TRUE(std::filesystem::exists(directory + "/manifest.json"));
      Tell(absl::StrCat("checkpoint ", step));
    };
    callbacks.checkpoint_failed = [this](int64_t step, const absl::Status&) {
      Tell(absl::StrCat("checkpoint_failed ", step));
    };
    callbacks.paused = [this](const RunPause& pause) {
      if (on_paused) on_paused(pause);
      Tell(pause.failure == RunFailure::kNone ? "paused" : "paused itself");
    };
    callbacks.ended = [this](const RunEnd& end) {
      {
        MutexLock lock(&mutex_);
        end_ = end;
        // Not shared: TSan does not see the reference count in the system's Abseil.
        end_.status = absl::Status(end.status.code(), end.status.message());
      }
      if (on_ended) on_ended();
      Tell("ended");
    };
    return callbacks;
  }

  const std::string& id() const { return id_; }
  // Blocks until it was told; an event told twice is waited for once.
  void WaitFor(const std::string& event) {
    MutexLock lock(&mutex_);
    while (!Has(event)) changed_.Wait(&mutex_);
  }
  RunEnd End() {
    WaitFor("ended");
    MutexLock lock(&mutex_);
    return end_;
  }
  std::vector<std::string> Events() {
    MutexLock lock(&mutex_);
    return events_;
  }
  std::vector<std::string> Messages() {
    MutexLock lock(&mutex_);
    return messages_;
  }
  std::map<int64_t, double> Losses() {
    MutexLock lock(&mutex_);
    return losses_;
  }

 private:
  bool Has(const std::string& event) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::find(events_.begin(), events_.end(), event) != events_.end();
  }
  void Tell(const std::string& event) {
    MutexLock lock(&mutex_);
    events_.push_back(event);
    changed_.NotifyAll();
  }

  const std::string id_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, double> losses_ ABSL_GUARDED_BY(mutex_);
  RunEnd end_ ABSL_GUARDED_BY(mutex_);
};

constexpr int64_t kUid = 1000;

class EngineJobRunnerTest : public ::testing::Test {
 protected:
  EngineJobRunnerTest() {
    EngineHostOptions options;
    options.threads = 2;
    auto host = EngineHost::Create(options);
    EXPECT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    EXPECT_TRUE(host_->ReservePool(kPoolBytes, nullptr, nullptr).ok());
    EngineJobRunnerOptions runner_options;
    runner_options.files = [this](int64_t uid, const std::string&) {
      EXPECT_EQ(uid, kUid);
      return absl::StatusOr<std::shared_ptr<FileSystem>>(
          std::shared_ptr<FileSystem>(&disk_, [](FileSystem*) {}));
    };
    runner_ = std::make_unique<EngineJobRunner>(host_.get(), std::move(runner_options));
  }

  absl::Status Start(Job& job, const JobSpec& spec) {
    RunRequest request;
    request.job_id = job.id();
    request.uid = kUid;
    request.spec = spec;
    auto records = records_.Open(job.id());
    EXPECT_TRUE(records.ok()) << records.status();
    request.records = *records;
    return runner_->Start(std::move(request), job.Callbacks());
  }
  RunEnd Run(Job& job, const JobSpec& spec) {
    const absl::Status status = Start(job, spec);
    EXPECT_TRUE(status.ok()) << status;
    return job.End();
  }
  void ExpectPoolWhole() const { EXPECT_EQ(host_->pool_usage().free_bytes, kPoolBytes); }
  std::vector<LogRecord> Metrics(const std::string& job_id) {
    auto records = records_.Open(job_id);
    EXPECT_TRUE(records.ok()) << records.status();
    std::vector<LogRecord> metrics;
    int64_t missed = 0;
    EXPECT_TRUE((*records)->metrics().Read(1)->Next(1000, &metrics, &missed).ok());
    return metrics;
  }

  FullDiskFileSystem disk_{PosixFileSystem()};
  JobRecordsDirectory records_{FreshDirectory("records")};
  std::unique_ptr<EngineHost> host_;
  std::unique_ptr<EngineJobRunner> runner_;
};

TEST_F(EngineJobRunnerTest, RunsJobsOneAfterTheOtherOnAWarmPool) {
  const JobSpec first_spec = Spec("first"), second_spec = Spec("second");
  Job first("a"), second("b");
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

TEST_F(EngineJobRunnerTest, RefusesWhatDoesNotFitTheState) {
  EXPECT_EQ(runner_->Pause("a", false).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Resume("a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Cancel("a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Checkpoint("a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runner_->Stop("a").code(), absl::StatusCode::kNotFound);
  const JobSpec spec = Spec("active"), other_spec = Spec("other_active");
  Job job("a"), other("b"), third("c");
  job.on_running = [&](int64_t) { ASSERT_TRUE(runner_->Pause("a", false).ok()); };
  ASSERT_TRUE(Start(job, spec).ok());
  EXPECT_EQ(Start(job, spec).code(), absl::StatusCode::kAlreadyExists);
  job.WaitFor("paused");
  EXPECT_EQ(Start(job, spec).code(), absl::StatusCode::kAlreadyExists);
  // Beside the paused one another may run, and then the paused one may not be resumed.
  other.on_running = [&](int64_t first_step) {
    if (first_step != 1) return;
    EXPECT_EQ(runner_->Resume("a").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Start(third, other_spec).code(), absl::StatusCode::kFailedPrecondition);
  };
  EXPECT_EQ(Run(other, other_spec).kind, RunEnd::Kind::kFinished);
  job.on_running = nullptr;
  EXPECT_TRUE(runner_->Resume("a").ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  EXPECT_EQ(job.Losses(), other.Losses());
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(other_spec));
  EXPECT_EQ(runner_->Pause("a", false).code(), absl::StatusCode::kNotFound);
  ExpectPoolWhole();
}

// Every request at every point that the job tells of: while each thing is prepared, when steps
// begin, after each step, while paused.
TEST_F(EngineJobRunnerTest, EveryRequestAtEveryPoint) {
  const JobSpec plain = Spec("plain");
  Job undisturbed("plain");
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
      Job job(absl::StrCat("job", number++));
      bool asked = false;
      const auto reached = [&](const std::string& now) {
        if (point == "paused" && now == "step 1") {
          EXPECT_TRUE(runner_->Pause(job.id(), false).ok());
        }
        if (now != point || asked) return;
        asked = true;
        absl::Status status;
        if (request == "pause") status = runner_->Pause(job.id(), false);
        if (request == "release") status = runner_->Pause(job.id(), true);
        if (request == "cancel") status = runner_->Cancel(job.id());
        if (request == "checkpoint") status = runner_->Checkpoint(job.id());
        if (request == "stop") status = runner_->Stop(job.id());
        EXPECT_TRUE(status.ok()) << status;
      };
      job.on_preparing = reached;
      job.on_running = [&](int64_t first) { reached(absl::StrCat("running ", first)); };
      job.on_step = [&](int64_t step) { reached(absl::StrCat("step ", step)); };
      job.on_paused = [&](const RunPause& pause) {
        EXPECT_EQ(pause.failure, RunFailure::kNone);
        reached("paused");
        if (request == "pause" || request == "checkpoint") {
          EXPECT_TRUE(runner_->Resume(job.id()).ok());
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
        Job rest(job.id());
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

TEST_F(EngineJobRunnerTest, ANextJobStartsFromTheEndOfTheLast) {
  const JobSpec spec = Spec("chain_a"), next_spec = Spec("chain_b");
  Job job("a"), next("b");
  job.on_ended = [&] { EXPECT_TRUE(Start(next, next_spec).ok()); };
  EXPECT_EQ(Run(job, spec).kind, RunEnd::Kind::kFinished);
  EXPECT_EQ(next.End().kind, RunEnd::Kind::kFinished);
}

TEST_F(EngineJobRunnerTest, RequestsFromManyThreadsAtAnyTime) {
  const JobSpec plain = Spec("plain_threads"), spec = Spec("threads");
  Job undisturbed("plain"), job("a");
  ASSERT_EQ(Run(undisturbed, plain).kind, RunEnd::Kind::kFinished);
  std::atomic<bool> over{false};
  job.on_ended = [&] { over = true; };
  ASSERT_TRUE(Start(job, spec).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!over) {
        if (t == 0) runner_->Pause("a", false).IgnoreError();
        if (t == 1) runner_->Checkpoint("a").IgnoreError();
        runner_->Resume("a").IgnoreError();
        std::this_thread::yield();
      }
    });
  }
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(job.Losses(), undisturbed.Losses());
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(plain));
}

// The process ends; what was recorded after the checkpoint is superseded when its successor runs
// the job.
TEST_F(EngineJobRunnerTest, RecordsAfterTheCheckpointAreSuperseded) {
  JobSpec spec = Spec("fall_back");
  spec.checkpoint.every_steps = 2;
  Job job("a");
  job.on_step = [&](int64_t step) {
    if (step == 3) {
      EXPECT_TRUE(runner_->Cancel("a").ok());
    }  // as lost as by kill -9
  };
  EXPECT_EQ(Run(job, spec).kind, RunEnd::Kind::kCancelled);
  ASSERT_THAT(job.Events(), Contains("step 3"));
  // Whether the checkpoint of step 2 was finished depends on the disk.
  const bool saved = !CheckpointTensorFiles(spec).empty();
  Job again("a");
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
  Job job("gone");
  EngineJobRunner runner(host_.get(), options);
  ASSERT_TRUE(runner.Start({"gone", Spec("gone"), nullptr}, job.Callbacks()).ok());
  const RunEnd end = job.End();
  EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
  EXPECT_EQ(end.failure, RunFailure::kInvalidInput);
  EXPECT_EQ(end.status.message(), "there is no account");
}

TEST_F(EngineJobRunnerTest, AFullDiskPausesWithItsReason) {
  const JobSpec spec = Spec("full");
  Job job("a");
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
  Job job("a");
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
    Job job(id);
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
  Job job("sound");
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
  Job holder("a"), waiter("b"), again("b");
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
  Job paused("a"), running("b");
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
  Job job("a"), other("b");
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
  Job job("a");
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

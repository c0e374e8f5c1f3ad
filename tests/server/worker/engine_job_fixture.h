// Real jobs of a tiny model on the cpu device, through the interface that the scheduler drives.
#ifndef MEGATRAIN_TESTS_SERVER_WORKER_ENGINE_JOB_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_WORKER_ENGINE_JOB_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "server/worker/engine_job_runner.h"
#include "server/worker/job_records.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/run/full_disk_file_system.h"

namespace megatrain {

inline constexpr int64_t kSteps = 4;
inline constexpr int64_t kPoolBytes = 64 * kMiB;

inline JobSpec Spec(const std::string& directory) {
  JobSpec spec =
      CurveJob(LoadModelReference("qwen2"), Precision::kBf16, true, FreshDirectory(directory));
  spec.training.steps = kSteps;
  return spec;
}

// What a job told, and hooks that answer on the job's own thread.
class ObservedJob {
 public:
  explicit ObservedJob(std::string id) : id_(std::move(id)) {}

  std::function<void(const std::string& activity)> on_preparing;
  std::function<void(int64_t first_step)> on_running;
  std::function<void(int64_t step)> on_step;
  std::function<void(const TrainingPause&)> on_paused;
  std::function<void()> on_ended;

  void Follow(const JobRunEvent& event) {
    std::visit(
        Overloaded{[this](const TrainingActivity& activity) {
                     EXPECT_LE(activity.fraction, 1.0);
                     if (activity.phase != TrainingPhase::kPreparing) return;
                     if (on_preparing) on_preparing(activity.what);
                   },
                   [this](const StepsBegin& begin) {
                     EXPECT_EQ(begin.total_steps, kSteps);
                     Tell(absl::StrCat("running ", begin.first_step));
                     if (on_running) on_running(begin.first_step);
                   },
                   [this](const StepRecord& record) {
                     {
                       MutexLock lock(&mutex_);
                       losses_[record.step] = record.loss;
                     }
                     Tell(absl::StrCat("step ", record.step));
                     if (on_step) on_step(record.step);
                   },
                   [this](const RunMessage& message) {
                     MutexLock lock(&mutex_);
                     messages_.push_back(message.line);
                   },
                   [](const BeforeCheckpoint&) {},
                   [this](const CheckpointSaved& saved) {
                     EXPECT_GE(saved.seconds, 0);
                     EXPECT_TRUE(std::filesystem::exists(saved.directory + "/manifest.json"));
                     Tell(absl::StrCat("checkpoint ", saved.step));
                   },
                   [this](const CheckpointFailed& failed) {
                     Tell(absl::StrCat("checkpoint_failed ", failed.step));
                   },
                   [this](const TrainingPause& pause) {
                     if (on_paused) on_paused(pause);
                     Tell(pause.status.ok() ? "paused" : "paused itself");
                   },
                   [](const SampledAnswer&) {}, [this](const RunEnd& end) { End(end); }},
        event);
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
  void End(const RunEnd& end) {
    {
      MutexLock lock(&mutex_);
      end_ = end;
      // Not shared: TSan does not see the reference count in the system's Abseil.
      end_.status = absl::Status(end.status.code(), end.status.message());
      end.status.ForEachPayload([this](absl::string_view mark, const absl::Cord&) {
        end_.status.SetPayload(mark, absl::Cord());
      });
    }
    if (on_ended) on_ended();
    Tell("ended");
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

// Takes the events of runs to their jobs.
class ObservedJobs : public RunObserver {
 public:
  // In place of an earlier one with this id, which must have ended.
  void Add(ObservedJob* job) {
    MutexLock lock(&mutex_);
    jobs_[job->id()] = job;
  }
  void Tell(const RunRequest& run, const JobRunEvent& event) override {
    ObservedJob* job = nullptr;
    {
      MutexLock lock(&mutex_);
      job = jobs_.at(run.job_id);
    }
    job->Follow(event);
  }

 private:
  Mutex mutex_;
  std::map<std::string, ObservedJob*> jobs_ ABSL_GUARDED_BY(mutex_);
};

inline constexpr int64_t kUid = 1000;

// A runner on a host with a warm pool, over a disk that can be filled.
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
    runner_options.observers = {&jobs_};
    runner_options.files = [this](int64_t uid, const std::string&) {
      EXPECT_EQ(uid, kUid);
      return absl::StatusOr<std::shared_ptr<FileSystem>>(
          std::shared_ptr<FileSystem>(&disk_, [](FileSystem*) {}));
    };
    runner_ = std::make_unique<EngineJobRunner>(host_.get(), std::move(runner_options));
  }

  absl::Status Start(ObservedJob& job, const JobSpec& spec) {
    RunRequest request;
    request.job_id = job.id();
    request.uid = kUid;
    request.spec = spec;
    auto records = records_.Open(job.id());
    EXPECT_TRUE(records.ok()) << records.status();
    request.records = *records;
    jobs_.Add(&job);
    return runner_->Start(std::move(request));
  }
  // On another runner, which must have jobs_ among its observers; nothing is recorded.
  absl::Status Start(EngineJobRunner& runner, ObservedJob& job, const JobSpec& spec) {
    jobs_.Add(&job);
    return runner.Start({job.id(), spec, nullptr});
  }
  RunEnd Run(ObservedJob& job, const JobSpec& spec) {
    const absl::Status status = Start(job, spec);
    EXPECT_TRUE(status.ok()) << status;
    return job.End();
  }
  void ExpectPoolWhole() const { EXPECT_EQ(host_->pool_usage().free_bytes, kPoolBytes); }
  std::vector<LogRecord> Metrics(const std::string& job_id) {
    auto records = records_.Open(job_id);
    EXPECT_TRUE(records.ok()) << records.status();
    std::vector<LogRecord> metrics;
    EXPECT_TRUE((*records)->metrics().Read(1)->Next(1000, &metrics).ok());
    return metrics;
  }

  FullDiskFileSystem disk_{PosixFileSystem()};
  JobRecordsDirectory records_{FreshDirectory("records")};
  ObservedJobs jobs_;
  std::unique_ptr<EngineHost> host_;
  std::unique_ptr<EngineJobRunner> runner_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_WORKER_ENGINE_JOB_FIXTURE_H_

#include "tests/engine/run/hooked_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {

absl::StatusOr<TrainingOutcome> HookedRun::Train(EngineHost& host, const JobSpec& spec) {
  TrainingObserver observer;
  observer.message = [&](const std::string& line) { run.messages.push_back(line); };
  observer.activity = [&](const TrainingActivity& now) {
    if (activity) activity(now);
  };
  observer.started = [&](int64_t first_step, int64_t total_steps) {
    EXPECT_EQ(total_steps, spec.training.steps);
    events.push_back(absl::StrCat("started ", first_step));
    if (started) started(first_step);
  };
  observer.step = [&](const StepRecord& record) {
    events.push_back(absl::StrCat("step ", record.step));
    run.records.push_back(record);
    if (step) step(record.step);
  };
  observer.before_checkpoint = [&](int64_t at) {
    if (before_checkpoint) before_checkpoint(at);
  };
  observer.checkpoint = [&](int64_t at, const std::string& directory, double seconds) {
    EXPECT_GE(seconds, 0);
    EXPECT_TRUE(std::filesystem::exists(directory + "/manifest.json")) << directory;
    events.push_back(absl::StrCat("checkpoint ", at));
  };
  observer.checkpoint_failed = [&](int64_t at, const absl::Status& status) {
    EXPECT_FALSE(status.ok());
    events.push_back(absl::StrCat("checkpoint_failed ", at));
  };
  observer.paused = [&](const TrainingPause& pause) {
    events.push_back(pause.status.ok() ? "paused" : "paused itself");
    if (paused) paused(pause);
  };
  observer.alive = [&] {
    if (alive) alive();
  };
  auto outcome = RunTraining(host, spec, options, &control, observer);
  run.status = outcome.status();
  return outcome;
}

std::unique_ptr<EngineHost> Host(FileSystem* files) {
  EngineHostOptions options;
  options.threads = 2;
  options.files = files;
  auto host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  return *std::move(host);
}

std::unique_ptr<EngineHost> HostWithPool(FileSystem* files) {
  auto host = Host(files);
  EXPECT_TRUE(host->ReservePool(kHookedPoolBytes, nullptr, nullptr).ok());
  return host;
}

JobSpec HookedJob(const std::string& directory, Precision precision, bool clipped) {
  JobSpec spec =
      CurveJob(LoadModelReference("qwen2"), precision, clipped, FreshDirectory(directory));
  spec.training.steps = kHookedSteps;
  spec.training.micro_batch = 1;
  return spec;
}

void ExpectSameRecords(const JobRun& run, const JobRun& expected) {
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (size_t k = 0; k < run.records.size(); ++k) {
    EXPECT_EQ(run.records[k].step, expected.records[k].step);
    EXPECT_EQ(run.records[k].loss, expected.records[k].loss) << "step " << k + 1;
    EXPECT_EQ(run.records[k].gradient_norm, expected.records[k].gradient_norm) << "step " << k + 1;
    EXPECT_EQ(run.records[k].total_tokens, expected.records[k].total_tokens);
    EXPECT_EQ(run.records[k].eval_loss, expected.records[k].eval_loss);
  }
}

void ExpectSameFiles(const JobSpec& spec, const JobSpec& expected) {
  const auto files = CheckpointTensorFiles(spec), wanted = CheckpointTensorFiles(expected);
  ASSERT_FALSE(wanted.empty());
  EXPECT_TRUE(files == wanted);
}

void ExpectPoolWhole(const EngineHost& host) {
  const PoolUsage usage = host.pool_usage();
  EXPECT_EQ(usage.capacity, kHookedPoolBytes);
  EXPECT_EQ(usage.free_bytes, kHookedPoolBytes);
  for (const int64_t bytes : usage.bytes) EXPECT_EQ(bytes, 0);
}

bool HasCheckpoint(const JobSpec& spec) {
  if (!std::filesystem::exists(spec.checkpoint.directory)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(spec.checkpoint.directory)) {
    if (absl::StartsWith(entry.path().filename().string(), "step-")) return true;
  }
  return false;
}

}  // namespace megatrain

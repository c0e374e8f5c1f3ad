#include "tests/engine/run/hooked_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {

absl::StatusOr<TrainingOutcome> HookedRun::Train(EngineHost& host, const JobSpec& spec) {
  const Overloaded note = {
      [&](const RunMessage& message) { run.messages.push_back(message.line); },
      [&](const TrainingActivity& now) {
        if (activity) activity(now);
      },
      [&](const StepsBegin& begin) {
        // A run may be given in epochs.
        if (spec.training.steps > 0) {
          EXPECT_EQ(begin.total_steps, spec.training.steps);
        }
        events.push_back(absl::StrCat("started ", begin.first_step));
        if (started) started(begin.first_step);
      },
      [&](const StepRecord& record) {
        events.push_back(absl::StrCat("step ", record.step));
        run.records.push_back(record);
        if (step) step(record.step);
      },
      [&](const BeforeCheckpoint& before) {
        if (before_checkpoint) before_checkpoint(before.step);
      },
      [&](const CheckpointSaved& saved) {
        EXPECT_GE(saved.seconds, 0);
        EXPECT_TRUE(std::filesystem::exists(saved.directory + "/manifest.json")) << saved.directory;
        events.push_back(absl::StrCat("checkpoint ", saved.step));
        if (this->saved) this->saved(saved.step);
      },
      [&](const CheckpointFailed& failed) {
        EXPECT_FALSE(failed.status.ok());
        events.push_back(absl::StrCat("checkpoint_failed ", failed.step));
      },
      [&](const TrainingPause& pause) {
        events.push_back(pause.status.ok() ? "paused" : "paused itself");
        if (paused) paused(pause);
      },
      [&](const SampledAnswer&) {}};
  TrainingOptions told = options;
  told.alive = [&] {
    if (alive) alive();
  };
  auto outcome = RunTraining(host, spec, told, &control,
                             [&](const RunEvent& event) { std::visit(note, event); });
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

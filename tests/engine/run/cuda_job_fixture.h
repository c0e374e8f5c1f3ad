// Jobs on an emulated GPU.
#ifndef MEGATRAIN_TESTS_ENGINE_RUN_CUDA_JOB_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_RUN_CUDA_JOB_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {

inline constexpr int64_t kSteps = 3;
inline constexpr int kIllegalAddress = 700;

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Small: kernels are emulated thread by thread.
inline JobSpec Job(const std::string& directory) {
  JobSpec spec = CurveJob(LoadModelReference("qwen2"), Precision::kBf16, /*clipped=*/true,
                          FreshDirectory(directory));
  spec.training.steps = kSteps;
  spec.training.global_batch = 2;
  spec.training.micro_batch = 1;
  spec.data.sequence_length = 16;
  spec.data.cache_directory = ::testing::TempDir() + "/cache16";
  spec.checkpoint.every_steps = 1;
  spec.engine.device = "cuda";
  return spec;
}

inline std::unique_ptr<EngineHost> Host(EmulatedGpu& gpu, const std::string& device = "cuda",
                                        EngineHostOptions options = {}) {
  options.device = device;
  options.threads = 2;
  options.open_gpu = gpu.opener();
  auto host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  return *std::move(host);
}

struct Hooks {
  std::function<void(int64_t step)> checkpoint;
  std::function<void(int64_t step)> step;
  std::function<void()> paused;
};

inline JobRun TrainOn(EngineHost& host, const JobSpec& spec, const Hooks& hooks = {},
                      TrainingControl* control = nullptr) {
  JobRun run;
  TrainingControl own;
  const Overloaded note = {[&](const RunMessage& message) { run.messages.push_back(message.line); },
                           [&](const StepRecord& record) {
                             run.records.push_back(record);
                             if (hooks.step) hooks.step(record.step);
                           },
                           [&](const CheckpointSaved& saved) {
                             if (hooks.checkpoint) hooks.checkpoint(saved.step);
                           },
                           [&](const TrainingPause&) {
                             if (hooks.paused) hooks.paused();
                           },
                           [](const auto&) {}};
  const absl::StatusOr<TrainingOutcome> outcome =
      RunTraining(host, spec, {}, control != nullptr ? control : &own,
                  [&](const RunEvent& event) { std::visit(note, event); });
  run.status = outcome.status();
  if (outcome.ok()) run.outcome = *outcome;
  return run;
}

// What the job comes to when nothing is in its way.
struct Undisturbed {
  JobRun run;
  std::map<std::string, std::string> files;
};
inline const Undisturbed& WhatItComesTo() {
  static const auto& undisturbed = *[] {
    auto* const made = new Undisturbed;
    EmulatedGpu gpu;
    const auto host = Host(gpu);
    const JobSpec spec = Job("undisturbed");
    made->run = TrainOn(*host, spec);
    EXPECT_TRUE(made->run.status.ok()) << made->run.status;
    made->files = CheckpointTensorFiles(spec);
    return made;
  }();
  return undisturbed;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_RUN_CUDA_JOB_FIXTURE_H_

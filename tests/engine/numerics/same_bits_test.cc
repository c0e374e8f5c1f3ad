// The same job gives the same bits, in losses, norms, weights and moments, however the engine is
// told to hold and move its state, and wherever it was stopped and resumed.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

struct Case {
  std::string name;
  std::string family;
  Precision precision;
  bool clipped;
};

class SameBitsTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kSteps = 4;

  JobSpec Job(const std::string& directory) const {
    const ModelReference reference = LoadModelReference(GetParam().family);
    JobSpec spec =
        CurveJob(reference, GetParam().precision, GetParam().clipped, FreshDirectory(directory));
    spec.training.steps = kSteps;
    spec.training.micro_batch = 1;  // four micro-batches a step
    return spec;
  }

  static void ExpectSame(const JobRun& run, const JobRun& expected) {
    ASSERT_EQ(run.records.size(), expected.records.size());
    for (size_t k = 0; k < run.records.size(); ++k) {
      EXPECT_EQ(run.records[k].step, expected.records[k].step);
      EXPECT_EQ(run.records[k].loss, expected.records[k].loss) << "step " << k + 1;
      EXPECT_EQ(run.records[k].gradient_norm, expected.records[k].gradient_norm)
          << "step " << k + 1;
      EXPECT_EQ(run.records[k].total_tokens, expected.records[k].total_tokens);
    }
  }

  static void ExpectSameFiles(const JobSpec& spec, const JobSpec& expected) {
    const auto files = CheckpointTensorFiles(spec),
               expected_files = CheckpointTensorFiles(expected);
    ASSERT_FALSE(expected_files.empty());
    ASSERT_EQ(files.size(), expected_files.size());
    for (const auto& [name, bytes] : expected_files) {
      ASSERT_TRUE(files.contains(name)) << name;
      EXPECT_TRUE(files.at(name) == bytes) << name << " differs";
    }
  }
};

TEST_P(SameBitsTest, WhateverTheEngineOptions) {
  const JobSpec plain = Job("plain");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;

  using Engine = JobSpec::Engine;
  const std::vector<std::pair<std::string, std::function<void(Engine&)>>> variants = {
      {"again", [](Engine&) {}},
      {"weight_buffers 3", [](Engine& e) { e.weight_buffers = 3; }},
      {"weight_buffers 5", [](Engine& e) { e.weight_buffers = 5; }},
      {"micro_batches_per_sweep 1", [](Engine& e) { e.micro_batches_per_sweep = 1; }},
      {"micro_batches_per_sweep 2", [](Engine& e) { e.micro_batches_per_sweep = 2; }},
      {"micro_batches_per_sweep 3", [](Engine& e) { e.micro_batches_per_sweep = 3; }},
      {"stash host", [](Engine& e) { e.stash = StashPlace::kHost; }},
      {"stash device", [](Engine& e) { e.stash = StashPlace::kDevice; }},
      {"recompute all", [](Engine& e) { e.recompute = RecomputeMode::kAll; }},
      {"recompute none", [](Engine& e) { e.recompute = RecomputeMode::kNone; }},
      {"recompute all, stash host, sweeps of 2",
       [](Engine& e) {
         e.recompute = RecomputeMode::kAll;
         e.stash = StashPlace::kHost;
         e.micro_batches_per_sweep = 2;
       }},
      {"update_device host", [](Engine& e) { e.update_device = UpdateDevice::kHost; }},
      {"update_device device", [](Engine& e) { e.update_device = UpdateDevice::kDevice; }},
      {"update_device device, stash host, sweeps of 2",
       [](Engine& e) {
         e.update_device = UpdateDevice::kDevice;
         e.stash = StashPlace::kHost;
         e.micro_batches_per_sweep = 2;
       }},
      {"throttled link", [](Engine& e) { e.link_gigabytes_per_second = 0.2; }},
  };
  for (const auto& [name, change] : variants) {
    SCOPED_TRACE(name);
    JobSpec spec = Job("variant");
    change(spec.engine);
    const JobRun run = Train(spec);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ExpectSame(run, expected);
    ExpectSameFiles(spec, plain);
  }
  // With exact clipping there is one slab a tile.
  for (const int64_t slabs : {1, 2, 3, 7}) {
    if (GetParam().clipped) break;
    SCOPED_TRACE("gradient_slabs " + std::to_string(slabs));
    JobSpec spec = Job("variant");
    spec.engine.gradient_slabs = slabs;
    const JobRun run = Train(spec);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ExpectSame(run, expected);
    ExpectSameFiles(spec, plain);
  }
}

// A checkpoint is written after every step, beside the steps that follow. From each of them alone
// the job ends as if it had never been interrupted.
TEST_P(SameBitsTest, FromEveryCheckpoint) {
  const JobSpec plain = Job("plain");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobSpec all = Job("all");
  all.checkpoint.every_steps = 1;
  all.checkpoint.keep = kSteps;
  const JobRun saving = Train(all);
  ASSERT_TRUE(saving.status.ok()) << saving.status;
  ExpectSame(saving, expected);
  ExpectSameFiles(all, plain);
  for (int64_t step = 1; step < kSteps; ++step) {
    SCOPED_TRACE("from the checkpoint of step " + std::to_string(step));
    const JobSpec spec = Job("resumed");
    const std::string name = "/step-0000000" + std::to_string(step);
    std::filesystem::create_directories(spec.checkpoint.directory);
    std::filesystem::copy(all.checkpoint.directory + name, spec.checkpoint.directory + name,
                          std::filesystem::copy_options::recursive);
    JobRun run;
    run.records.assign(saving.records.begin(), saving.records.begin() + step);
    const JobRun rest = Train(spec);
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    run.records.insert(run.records.end(), rest.records.begin(), rest.records.end());
    ExpectSame(run, expected);
    ExpectSameFiles(spec, plain);
  }
}

// Asked to stop during every run's first step, resumed until it is done. A step that was already
// under way behind the first is finished too.
TEST_P(SameBitsTest, StoppedAgainAndAgain) {
  const JobSpec plain = Job("plain"), spec = Job("stopped");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobRun all;
  int runs = 0;
  for (bool finished = false; !finished; ++runs) {
    ASSERT_LT(runs, kSteps + 1);
    const int64_t first = static_cast<int64_t>(all.records.size()) + 1;
    const JobRun run = Train(spec, first);
    ASSERT_TRUE(run.status.ok()) << run.status;
    finished = run.outcome == TrainingOutcome::kFinished;
    all.records.insert(all.records.end(), run.records.begin(), run.records.end());
  }
  EXPECT_GE(runs, 2);
  ExpectSame(all, expected);
  ExpectSameFiles(spec, plain);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, SameBitsTest,
    ::testing::Values(Case{"untied_fp32_clipped", "llama", Precision::kFp32, true},
                      Case{"untied_bf16_unclipped", "qwen3", Precision::kBf16, false},
                      Case{"tied_bf16_clipped", "qwen2", Precision::kBf16, true},
                      Case{"tied_fp32_unclipped", "llama_tied", Precision::kFp32, false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatrain

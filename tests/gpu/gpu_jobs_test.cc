// Whole jobs on the GPU under test: like the cpu device's and like transformers', and the same bits
// from run to run, however the engine holds and moves its state, and wherever a job was stopped.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/engine.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/gpu/gpu_job.h"
#include "tests/gpu/gpu_under_test.h"

namespace megatrain {
namespace {

class GpuJobTest : public ::testing::TestWithParam<std::tuple<std::string, Precision>> {
 protected:
  static constexpr int64_t kSteps = 4;

  void SetUp() override {
    EngineHostOptions options;
    options.device = "cuda:0";
    options.open_gpu = OpenGpuUnderTest;
    absl::StatusOr<std::unique_ptr<EngineHost>> host = EngineHost::Create(options);
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    const absl::Status pinned = host_->ReservePool(64 * kMiB, nullptr, nullptr);
    ASSERT_TRUE(pinned.ok()) << pinned;
  }

  JobSpec Job(const std::string& directory, bool clipped) const {
    return GpuJob(reference_, std::get<1>(GetParam()), clipped, directory);
  }
  JobSpec ShortJob(const std::string& directory, bool clipped) const {
    JobSpec spec = Job(directory, clipped);
    spec.training.steps = kSteps;
    spec.training.micro_batch = 1;
    return spec;
  }

  const ModelReference reference_ = LoadModelReference(std::get<0>(GetParam()));
  std::unique_ptr<EngineHost> host_;
};

TEST_P(GpuJobTest, FollowsTheReferencesLosses) {
  for (const bool clipped : {false, true}) {
    SCOPED_TRACE(clipped ? "clipped" : "not clipped");
    ExpectReferencesCurve(reference_, std::get<1>(GetParam()), clipped,
                          TrainOnHost(*host_, Job("curve", clipped)));
  }
}

TEST_P(GpuJobTest, IsLikeTheCpus) {
  const bool fp32 = std::get<1>(GetParam()) == Precision::kFp32;
  const JobRun run = TrainOnHost(*host_, ShortJob("on_gpu", true));
  ASSERT_TRUE(run.status.ok()) << run.status;
  JobSpec spec = ShortJob("on_cpu", true);
  spec.engine.device = "cpu";
  const JobRun cpu = Train(spec);
  ASSERT_TRUE(cpu.status.ok()) << cpu.status;
  ASSERT_EQ(run.records.size(), cpu.records.size());
  // BF16 activations round where sums of another order differ in their last bit.
  const double loss_limit = fp32 ? 1e-4 : 2e-3, norm_limit = fp32 ? 1e-3 : 2e-2;
  for (size_t k = 0; k < run.records.size(); ++k) {
    SCOPED_TRACE("step " + std::to_string(k + 1));
    const StepRecord &got = run.records[k], &want = cpu.records[k];
    EXPECT_NEAR(got.loss, want.loss, loss_limit * want.loss);
    EXPECT_NEAR(got.gradient_norm, want.gradient_norm, norm_limit * want.gradient_norm);
  }
}

TEST_P(GpuJobTest, GivesTheSameBitsWhateverTheEngineOptions) {
  using Engine = JobSpec::Engine;
  const std::vector<std::pair<std::string, std::function<void(Engine&)>>> variants = {
      {"again", [](Engine&) {}},
      {"weight_buffers 3", [](Engine& e) { e.weight_buffers = 3; }},
      {"micro_batches_per_sweep 1", [](Engine& e) { e.micro_batches_per_sweep = 1; }},
      {"stash host, recompute all",
       [](Engine& e) {
         e.stash = StashPlace::kHost;
         e.recompute = RecomputeMode::kAll;
       }},
      {"recompute none", [](Engine& e) { e.recompute = RecomputeMode::kNone; }},
      {"update_device device", [](Engine& e) { e.update_device = UpdateDevice::kDevice; }},
  };
  for (const bool clipped : {false, true}) {
    const JobSpec plain = ShortJob("plain", clipped);
    const JobRun expected = TrainOnHost(*host_, plain);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    for (const auto& [name, change] : variants) {
      SCOPED_TRACE(name + (clipped ? ", clipped" : ", not clipped"));
      JobSpec spec = ShortJob("variant", clipped);
      change(spec.engine);
      ExpectSameBits(spec, TrainOnHost(*host_, spec), plain, expected);
    }
  }
}

// Asked to stop during every run's first step, resumed until it is done.
TEST_P(GpuJobTest, GivesTheSameBitsWhenStoppedAndResumed) {
  const JobSpec plain = ShortJob("plain", true), spec = ShortJob("stopped", true);
  const JobRun expected = TrainOnHost(*host_, plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobRun all;
  for (int runs = 0; all.records.size() < static_cast<size_t>(kSteps); ++runs) {
    ASSERT_LE(runs, kSteps);
    const JobRun run = TrainOnHost(*host_, spec, static_cast<int64_t>(all.records.size()) + 1);
    ASSERT_TRUE(run.status.ok()) << run.status;
    all.records.insert(all.records.end(), run.records.begin(), run.records.end());
  }
  ExpectSameBits(spec, all, plain, expected);
}

INSTANTIATE_TEST_SUITE_P(Families, GpuJobTest,
                         ::testing::Combine(::testing::ValuesIn(ReferenceFamilies()),
                                            ::testing::Values(Precision::kFp32, Precision::kBf16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == Precision::kFp32 ? "_fp32" : "_bf16");
                         });

}  // namespace
}  // namespace megatrain

// A device that is lost in the midst of a step: the process is told to end, and the job goes on in
// the next one.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/bytes.h"
#include "server/worker/engine_job_runner.h"
#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

constexpr int kIllegalAddress = 700;

JobSpec Spec() {
  JobSpec spec = CurveJob(LoadModelReference("qwen2"), Precision::kFp32, /*clipped=*/true,
                          FreshDirectory("device_lost"));
  spec.training.steps = 3;
  spec.training.global_batch = spec.training.micro_batch = 1;
  spec.data.sequence_length = 16;
  spec.checkpoint.every_steps = 1;
  spec.engine.device = "auto";
  return spec;
}

// A daemon's life: a host, a runner, one run of the job.
struct Process {
  explicit Process(EmulatedGpu& gpu) {
    EngineHostOptions options;
    options.threads = 2;
    options.open_gpu = gpu.opener();
    auto made = EngineHost::Create(options);
    EXPECT_TRUE(made.ok()) << made.status();
    host = *std::move(made);
    EXPECT_TRUE(host->ReservePool(64 * kMiB, nullptr, nullptr).ok());
    EngineJobRunnerOptions runner_options;
    runner_options.observers = {&observer};
    runner_options.device_lost = [this](const std::string& job, const std::string& why) {
      lost_job = job;
      lost_why = why;
    };
    runner = std::make_unique<EngineJobRunner>(host.get(), std::move(runner_options));
  }

  RunEnd Run(const JobSpec& spec, std::function<void(int64_t)> checkpoint = {}) {
    observer.ended = std::promise<RunEnd>();
    observer.checkpoint = std::move(checkpoint);
    RunRequest request;
    request.job_id = "a";
    request.spec = spec;
    EXPECT_TRUE(runner->Start(std::move(request)).ok());
    return observer.ended.get_future().get();
  }

  struct Observer : RunObserver {
    void Tell(const RunRequest&, const JobRunEvent& event) override {
      if (const auto* const saved = std::get_if<CheckpointSaved>(&event)) {
        if (checkpoint) checkpoint(saved->step);
      }
      if (const auto* const end = std::get_if<RunEnd>(&event)) ended.set_value(*end);
    }
    std::function<void(int64_t step)> checkpoint;
    std::promise<RunEnd> ended;
  };

  Observer observer;
  std::string lost_job, lost_why;
  std::unique_ptr<EngineHost> host;
  std::unique_ptr<EngineJobRunner> runner;
};

TEST(DeviceLostTest, EndsTheProcessAndTheJobGoesOnInTheNext) {
  const JobSpec spec = Spec();
  {
    EmulatedGpu gpu;
    Process process(gpu);
    const RunEnd end = process.Run(spec, [&](int64_t step) {
      if (step == 1) gpu.edge().Fail("EventSynchronize", kIllegalAddress, 1, /*sticky=*/true);
    });
    EXPECT_EQ(end.kind, RunEnd::Kind::kLost) << "it has not failed";
    EXPECT_EQ(process.lost_job, "a");
    EXPECT_NE(process.lost_why.find("emulated error 700"), std::string::npos) << process.lost_why;
  }
  EmulatedGpu gpu;
  Process process(gpu);
  const RunEnd end = process.Run(spec);
  EXPECT_EQ(end.kind, RunEnd::Kind::kFinished) << end.status;
  EXPECT_EQ(process.lost_job, "");
}

TEST(DeviceLostTest, AnErrorThatPassesFailsTheJobAlone) {
  EmulatedGpu gpu;
  Process process(gpu);
  JobSpec spec = Spec();
  const RunEnd end = process.Run(spec, [&](int64_t step) {
    if (step == 1) gpu.edge().Fail("CopyToHost", 1);
  });
  EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
  EXPECT_EQ(process.lost_job, "");
  // The next one runs on the same device and pool.
  gpu.edge().Fail("CopyToHost", 0);
  EXPECT_EQ(process.Run(spec).kind, RunEnd::Kind::kFinished);
}

}  // namespace
}  // namespace megatrain

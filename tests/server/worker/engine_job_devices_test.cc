// Jobs side by side, each on devices of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/server/worker/engine_job_fixture.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// What the driver gives after a kernel has read where it must not: the context is lost.
constexpr int kIllegalAddress = 700;

// A daemon's engine with several devices.
struct Engine {
  explicit Engine(EngineHostOptions options) {
    options.threads = 2;
    auto made = EngineHost::Create(options);
    EXPECT_TRUE(made.ok()) << made.status();
    host = *std::move(made);
    EXPECT_TRUE(host->ReservePool(2 * kPoolBytes, nullptr, nullptr).ok());
    EngineJobRunnerOptions runner_options;
    runner_options.observers = {&jobs};
    runner_options.device_lost = [this](const std::string& job, const std::string&) {
      lost.push_back(job);
    };
    runner = std::make_unique<EngineJobRunner>(host.get(), std::move(runner_options));
  }

  absl::Status Start(ObservedJob& job, const JobSpec& spec, std::vector<int> devices) {
    jobs.Add(&job);
    RunRequest request{.job_id = job.id(), .spec = spec, .records = nullptr};
    request.devices = std::move(devices);
    return runner->Start(std::move(request));
  }

  ObservedJobs jobs;
  std::vector<std::string> lost;
  std::unique_ptr<EngineHost> host;
  std::unique_ptr<EngineJobRunner> runner;
};

// The losses of a job that has the machine to itself; its checkpoint stays in the directory.
std::map<int64_t, double> LossesAlone(const JobSpec& spec, const EngineHostOptions& options) {
  Engine engine(options);
  ObservedJob job("alone");
  EXPECT_TRUE(engine.Start(job, spec, {0}).ok());
  EXPECT_EQ(job.End().kind, RunEnd::Kind::kFinished) << job.End().status;
  return job.Losses();
}

TEST(EngineJobDevicesTest, TwoJobsTrainAtTheSameTime) {
  const JobSpec alone = Spec("alone"), spec_a = Spec("a"), spec_b = Spec("b");
  const std::map<int64_t, double> losses = LossesAlone(alone, {.device = "cpu"});
  Engine engine({.device = "cpu", .devices = 2});
  ObservedJob a("a"), b("b"), third("c");
  // Neither goes on from its first step before the other is as far, and no third has been let in.
  std::promise<void> refused;
  const std::shared_future<void> third_refused = refused.get_future().share();
  a.on_step = [&](int64_t step) {
    if (step != 1) return;
    b.WaitFor("step 1");
    third_refused.wait();
  };
  b.on_step = [&](int64_t step) {
    if (step == 1) third_refused.wait();
  };
  b.on_running = [&](int64_t) { a.WaitFor("running 1"); };
  ASSERT_TRUE(engine.Start(a, spec_a, {0}).ok());
  ASSERT_TRUE(engine.Start(b, spec_b, {1}).ok());
  a.WaitFor("running 1");
  for (const std::vector<int>& taken : {std::vector<int>{0}, {1}, {0, 1}}) {
    EXPECT_EQ(engine.Start(third, Spec("c"), taken).code(), absl::StatusCode::kFailedPrecondition);
  }
  refused.set_value();
  for (ObservedJob* const job : {&a, &b}) {
    EXPECT_EQ(job->End().kind, RunEnd::Kind::kFinished) << job->End().status;
    EXPECT_EQ(job->Losses(), losses);
    EXPECT_THAT(job->Messages(), Contains(HasSubstr("cpu, 1 thread"))) << "half of them";
  }
  EXPECT_TRUE(CheckpointTensorFiles(spec_a) == CheckpointTensorFiles(alone));
  EXPECT_TRUE(CheckpointTensorFiles(spec_b) == CheckpointTensorFiles(alone));
  EXPECT_EQ(engine.host->pool_usage().free_bytes, 2 * kPoolBytes);
}

TEST(EngineJobDevicesTest, APausedJobGoesOnWhereItWas) {
  const std::map<int64_t, double> losses = LossesAlone(Spec("alone"), {.device = "cpu"});
  Engine engine({.device = "cpu", .devices = 2});
  ObservedJob paused("paused"), beside("beside"), there("there");
  paused.on_step = [&](int64_t step) {
    if (step != 2) return;
    EXPECT_TRUE(engine.runner->Ask("paused", RunWish::kPause).ok());
  };
  beside.on_running = [&](int64_t) { there.WaitFor("ended"); };
  there.on_step = [&](int64_t step) {
    if (step != 1) return;
    EXPECT_EQ(engine.runner->Ask("paused", RunWish::kResume).code(),
              absl::StatusCode::kFailedPrecondition);
  };
  ASSERT_TRUE(engine.Start(paused, Spec("paused"), {1}).ok());
  ASSERT_TRUE(engine.Start(beside, Spec("beside"), {0}).ok());
  paused.WaitFor("paused");
  ASSERT_TRUE(engine.Start(there, Spec("there"), {1}).ok());
  EXPECT_EQ(there.End().kind, RunEnd::Kind::kFinished) << there.End().status;
  // Device 0 may be at work still.
  ASSERT_TRUE(engine.runner->Ask("paused", RunWish::kResume).ok());
  for (ObservedJob* const job : {&paused, &beside, &there}) {
    EXPECT_EQ(job->End().kind, RunEnd::Kind::kFinished) << job->End().status;
    EXPECT_EQ(job->Losses(), losses);
  }
}

TEST(EngineJobDevicesTest, AGpuThatIsLostDoesNotTouchTheJobOnAnother) {
  JobSpec spec = Spec("alone");
  spec.engine.device = "auto";
  std::map<int64_t, double> losses;
  {
    EmulatedGpu gpu;
    losses = LossesAlone(spec, {.device = "cuda", .open_gpu = gpu.opener()});
  }
  EmulatedGpu gpu({.devices = 2});
  Engine engine({.device = "cuda", .open_gpu = gpu.opener(), .devices = 0});
  ObservedJob a("a"), b("b");
  JobSpec spec_a = Spec("a"), spec_b = Spec("b");
  spec_a.engine.device = spec_b.engine.device = "auto";
  a.on_step = [&](int64_t step) {
    if (step != 1) return;
    b.WaitFor("step 1");
    gpu.edge(0).Fail("EventSynchronize", kIllegalAddress, 1, /*sticky=*/true);
  };
  b.on_step = [&](int64_t step) {
    if (step == 2) a.WaitFor("ended");
  };
  ASSERT_TRUE(engine.Start(a, spec_a, {0}).ok());
  ASSERT_TRUE(engine.Start(b, spec_b, {1}).ok());
  EXPECT_EQ(a.End().kind, RunEnd::Kind::kLost) << a.End().status;
  EXPECT_EQ(b.End().kind, RunEnd::Kind::kFinished) << b.End().status;
  EXPECT_EQ(b.Losses(), losses);
  EXPECT_EQ(engine.lost, std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace megatrain

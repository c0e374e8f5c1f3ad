// Whole jobs on the cuda device, over an emulated edge: chosen, planned, trained, and what
// becomes of them when a call of CUDA's fails in the midst of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/device_lost.h"
#include "engine/host/measure_hardware.h"
#include "engine/pipeline/schedule/schedule.h"
#include "tests/engine/device/cuda/emulated_cuda.h"
#include "tests/engine/run/cuda_job_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(CudaJobTest, TrainsAsOnTheCpu) {
  const JobRun& run = WhatItComesTo().run;
  JobSpec spec = Job("on_the_cpu");
  spec.engine.device = "cpu";
  const JobRun cpu = Train(spec);
  ASSERT_TRUE(cpu.status.ok()) << cpu.status;
  ASSERT_EQ(run.records.size(), static_cast<size_t>(kSteps));
  for (size_t k = 0; k < run.records.size(); ++k) {
    // BF16 activations round where sums of another order differ in their last bit.
    EXPECT_NEAR(run.records[k].loss, cpu.records[k].loss, 2e-3 * cpu.records[k].loss);
    EXPECT_NEAR(run.records[k].gradient_norm, cpu.records[k].gradient_norm,
                2e-2 * cpu.records[k].gradient_norm);
    EXPECT_GT(run.records[k].device_bytes, CudaKernelSizes().StreamWorkspaceBytes());
    EXPECT_GT(run.records[k].lane_busy_seconds.compute, 0);
  }
  EXPECT_THAT(run.messages, Contains(HasSubstr("on cuda:0, Emulated")));
}

// cuDNN's graphs take half a second each to build: no call may be the first that asks for one.
TEST(CudaJobTest, CallsOfAttentionAreAnnouncedBeforeTheyAreMade) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  const JobRun run = TrainOn(*host, Job("announced"));
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(gpu.edge().unannounced(), 0);
}

TEST(CudaJobTest, TwoRunsGiveTheSameBits) {
  EmulatedGpu gpu;
  const auto host = Host(gpu, "auto");
  ASSERT_TRUE(host->ReservePool(64 * kMiB, nullptr, nullptr).ok());
  JobSpec spec = Job("again");
  spec.engine.device = "auto";
  const JobRun run = TrainOn(*host, spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_TRUE(CheckpointTensorFiles(spec) == WhatItComesTo().files);
  // Operations are named for a profiler, of device lanes and of the host's.
  EXPECT_THAT(gpu.edge().ranges(), Contains(std::string(LayerForwardOp::kName)));
  EXPECT_THAT(gpu.edge().ranges(), Contains(std::string(UpdateTileOp::kName)));
}

TEST(CudaJobTest, SettingsOfTheCpuDeviceAloneAreRefused) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  JobSpec spec = Job("settings");
  spec.engine.link_gigabytes_per_second = 1;
  EXPECT_THAT(Message(TrainOn(*host, spec).status), HasSubstr("engine.link_gigabytes_per_second"));
  spec = Job("settings");
  spec.engine.update_threads = 1;
  EXPECT_THAT(Message(TrainOn(*host, spec).status), HasSubstr("engine.update_threads"));
  spec.engine.update_threads = 0;
  spec = Job("settings");
  spec.engine.device = "cpu";
  EXPECT_THAT(Message(TrainOn(*host, spec).status), HasSubstr("write auto or cuda:0"));
}

TEST(CudaJobTest, AGpuThatIsElsewhereIsPlannedForByItsMemory) {
  JobSpec spec = Job("elsewhere");
  const absl::Status status = PlanTraining(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("engine.device_memory"));
  spec.engine.device_memory = 80 * kGiB;
  const absl::Status rated = PlanTraining(spec, GpuOpener(), {"link=50"}).status();
  EXPECT_EQ(rated.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(rated), AllOf(HasSubstr("--rate: link=50"), HasSubstr("--profile NAME")));
  const auto plan = PlanTraining(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->fits);
  EXPECT_THAT(plan->table, HasSubstr("stream workspace"));
  EXPECT_THAT(plan->table, HasSubstr("a GPU that is not here"));
  EXPECT_EQ(plan->choice.predicted.step_seconds, 0);
  spec.engine.device_memory = 1 * kMiB;
  EXPECT_FALSE(PlanTraining(spec)->fits);
  // The host is elsewhere too, and may have more memory than this one.
  spec.engine.device_memory = 80 * kGiB;
  spec.engine.host_memory = int64_t{1} << 50;
  const auto large = PlanTraining(spec);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->host_limit_bytes.value_or(0), spec.engine.host_memory);
  spec.engine.host_memory = 1 * kMiB;
  EXPECT_FALSE(PlanTraining(spec)->fits);
  spec.engine.host_memory = 0;
  // On a host with such a card the same bytes are planned.
  EmulatedGpu gpu({.memory_bytes = 80 * kGiB});
  const auto host = Host(gpu);
  ASSERT_TRUE(host->ReservePool(64 * kMiB, nullptr, nullptr).ok());
  spec.engine.device_memory = 0;
  const auto there = PlanTraining(spec, host->budget(), PosixFileSystem());
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->device_bytes, plan->device_bytes);
  spec.engine.device = "cpu";
  EXPECT_EQ(PlanTraining(spec, host->budget(), PosixFileSystem()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

constexpr MeasurementSizes kSmallMeasurement = {.tokens = 16,
                                                .hidden = 32,
                                                .wide = 64,
                                                .head_dim = 16,
                                                .state_elements = 1 << 16,
                                                .copy_bytes = 1 << 18,
                                                .repetitions = 1,
                                                .product_seconds = 2.5e-3};

TEST(CudaJobTest, RatesAreMeasuredEachWayAndBothAtOnce) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  const int64_t before = gpu.edge().registered_bytes();
  const auto session = host->OpenSession({});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto rates = MeasureHardware(**session, kSmallMeasurement);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_FALSE(rates->device_is_host);
  for (const double rate :
       {rates->h2d_bytes_per_second, rates->d2h_bytes_per_second,
        rates->h2d_beside_d2h_bytes_per_second, rates->d2h_beside_h2d_bytes_per_second,
        rates->bf16.matmul_flops_per_second, rates->bf16.attention_flops_per_second,
        rates->bf16.attention_backward_flops_per_second, rates->launch_seconds,
        rates->bf16.element_bytes_per_second, rates->bf16.update_bytes_per_second,
        rates->host_memory_bytes_per_second}) {
    EXPECT_GT(rate, 0);
  }
  EXPECT_EQ(gpu.edge().allocated_bytes(), 0);
  EXPECT_EQ(gpu.edge().registered_bytes(), before);
}

// Every span of events takes a millisecond.
class SteadyCuda : public EmulatedCuda {
 public:
  int EventElapsed(void* start, void* end, float* milliseconds) override {
    const int error = EmulatedCuda::EventElapsed(start, end, milliseconds);
    *milliseconds = 1;
    return error;
  }
};

TEST(CudaJobTest, RatesAreWhatWasDoneInTheTime) {
  EngineHostOptions options{.device = "cuda", .threads = 2};
  options.open_gpu = [](int ordinal) {
    return CreateCudaDevice(std::make_unique<SteadyCuda>(), ordinal);
  };
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  const auto session = (*host)->OpenSession({});
  const auto rates = MeasureHardware(**session, kSmallMeasurement);
  ASSERT_TRUE(rates.ok()) << rates.status();
  const auto expect = [](double got, double want) { EXPECT_NEAR(got, want, 1e-5 * want); };
  // A product a millisecond: for half of 2.5 ms two of them and one more.
  expect(rates->bf16.matmul_flops_per_second, 3 * 2.0 * 16 * 64 * 32 / 1e-3);
  expect(rates->bf16.attention_flops_per_second, 2 * 16.0 * 16 * 32 / 1e-3);
  expect(rates->bf16.attention_backward_flops_per_second, 5 * 16.0 * 16 * 32 / 1e-3);
  expect(rates->bf16.element_bytes_per_second, 3.0 * 16 * 64 * 2 / 1e-3);
  expect(rates->h2d_bytes_per_second, (1 << 18) / 1e-3);
  expect(rates->launch_seconds, 1e-3 / 200);
}

struct Fault {
  const char* method;
  int error;
  bool sticky;
  const char* told;  // what the message has of it
};

class CudaFaultTest : public ::testing::TestWithParam<Fault> {};

// In the step after the first checkpoint, which is what remains.
TEST_P(CudaFaultTest, EndsTheJobWithItsLastCheckpointWhole) {
  const Fault fault = GetParam();
  const JobSpec spec = Job(std::string("fault_") + fault.method + (fault.sticky ? "_lost" : ""));
  {
    EmulatedGpu gpu;
    const auto host = Host(gpu);
    Hooks hooks;
    hooks.checkpoint = [&](int64_t step) {
      if (step == 1) gpu.edge().Fail(fault.method, fault.error, /*after=*/2, fault.sticky);
    };
    const JobRun run = TrainOn(*host, spec, hooks);
    ASSERT_FALSE(run.status.ok());
    EXPECT_THAT(Message(run.status), HasSubstr(fault.told));
    EXPECT_EQ(IsDeviceLost(run.status), fault.sticky) << run.status;
    EXPECT_LT(run.records.size(), static_cast<size_t>(kSteps));
  }
  // Another process.
  std::vector<DamagedCheckpoint> damaged;
  const auto newest = FindNewestToLoad(spec.checkpoint.directory, &damaged);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_TRUE(newest->has_value());
  EXPECT_TRUE(damaged.empty());
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  const JobRun resumed = TrainOn(*host, spec);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_TRUE(CheckpointTensorFiles(spec) == WhatItComesTo().files);
}

// What was begun on a processor may go on elsewhere, and says that the bits are others'.
TEST(CudaJobTest, GoingOnOnAnotherDeviceIsTold) {
  EmulatedGpu gpu;
  JobSpec spec = Job("other_device");
  const std::string other = "the checkpoint was made on ";
  const auto told = [&](const JobRun& run) {
    return std::count_if(run.messages.begin(), run.messages.end(), [&](const std::string& line) {
      return line.find(other) != std::string::npos;
    });
  };
  spec.training.steps = 1;
  spec.engine.device = "cpu";
  const JobRun first = TrainOn(*Host(gpu, "cpu"), spec);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(told(first), 0);
  spec.training.steps = 2;
  spec.engine.device = "cuda";
  const JobRun moved = TrainOn(*Host(gpu), spec);
  ASSERT_TRUE(moved.status.ok()) << moved.status;
  EXPECT_THAT(moved.messages,
              Contains(AllOf(HasSubstr(other + "cpu, oneDNN "),
                             HasSubstr("this run computes on cuda, Emulated, compute capability "
                                       "9.0"),
                             HasSubstr("bits may differ"))));
  spec.training.steps = 3;
  const JobRun again = TrainOn(*Host(gpu), spec);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(told(again), 0);
}

// The edge fails a call of the library; the job's word decides whether there is one.
TEST(CudaJobTest, AttentionIsTheLibrarysOrOurOwnAsTheJobSays) {
  JobSpec spec = Job("attention");
  spec.engine.attention = AttentionChoice::kOwn;
  {
    EmulatedGpu gpu({.cudnn = true});
    const auto host = Host(gpu);
    gpu.edge().Fail("Attention", kAttentionFailed + 8);
    gpu.edge().Fail("AttentionBackward", kAttentionFailed + 8);
    const JobRun own = TrainOn(*host, spec);
    ASSERT_TRUE(own.status.ok()) << own.status;
    EXPECT_TRUE(CheckpointTensorFiles(spec) == WhatItComesTo().files);
  }
  spec = Job("attention_library");
  spec.engine.attention = AttentionChoice::kLibrary;
  {
    EmulatedGpu gpu;
    const JobRun none = TrainOn(*Host(gpu), spec);
    EXPECT_EQ(none.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(none.status),
                HasSubstr("engine.attention: library: there is no cuDNN: it is not emulated"));
  }
  {
    EmulatedGpu gpu({.cudnn = true});
    const JobRun refused = TrainOn(*Host(gpu), spec);
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition) << refused.status;
    EXPECT_THAT(Message(refused.status), HasSubstr("cuDNN does not take"));
  }
  spec.engine.device = "cpu";
  EmulatedGpu gpu;
  EXPECT_THAT(Message(TrainOn(*Host(gpu, "cpu"), spec).status),
              HasSubstr("engine.attention: library: this device has attention of its own alone"));
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CudaFaultTest,
    ::testing::Values(
        Fault{"CopyToDevice", 1, false, "cudaMemcpyAsync to the device: emulated error 1"},
        Fault{"CopyToHost", 1, false, "cudaMemcpyAsync to the host: emulated error 1"},
        Fault{"Launch", 9, false, "emulated error 9"},
        Fault{"Product", kProductFailed + 13, false, "cublasLtMatmul: emulated error 100013"},
        Fault{"Attention", kAttentionFailed + 8, false, "cuDNN's attention: emulated error 200008"},
        Fault{"AttentionBackward", kAttentionFailed + 8, false,
              "cuDNN's gradient of attention: emulated error 200008"},
        Fault{"AttentionBackward", kIllegalAddress, true, "emulated error 700"},
        Fault{"EventRecord", 1, false, "cudaEventRecord"},
        Fault{"StreamWaitEvent", 1, false, "cudaStreamWaitEvent"},
        Fault{"EventSynchronize", kIllegalAddress, true, "cudaEventSynchronize"},
        Fault{"CopyToHost", kIllegalAddress, true, "emulated error 700"},
        Fault{"Launch", 719, true, "emulated error 719"}),
    [](const auto& info) {
      return std::string(info.param.method) + (info.param.sticky ? "Lost" : "");
    });

TEST(CudaJobTest, ADeviceLostWhilePausedEndsTheJob) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  TrainingControl control;
  Hooks hooks;
  hooks.step = [&](int64_t step) {
    if (step == 1) control.Pause();
  };
  hooks.paused = [&] {
    gpu.edge().Fail("Malloc", kIllegalAddress, 0, /*sticky=*/true);
    control.Resume();
  };
  const JobRun run = TrainOn(*host, Job("lost_while_paused"), hooks, &control);
  EXPECT_TRUE(IsDeviceLost(run.status)) << run.status;
}

}  // namespace
}  // namespace megatrain

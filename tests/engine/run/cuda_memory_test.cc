// Memory of the device and of the host as jobs on an emulated GPU take it: pinned, given back by a
// pause, refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/base/bytes.h"
#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/device_lost.h"
#include "tests/engine/run/cuda_job_fixture.h"
#include "tests/engine/run/full_disk_file_system.h"
#include "tests/engine/run/hooked_run.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CudaMemoryTest, APauseGivesTheDevicesMemoryBack) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  const JobSpec spec = Job("paused");
  TrainingControl control;
  int64_t bytes_paused = -1;
  Hooks hooks;
  hooks.step = [&](int64_t step) {
    if (step == 1) control.Pause();
  };
  hooks.paused = [&] {
    bytes_paused = gpu.edge().allocated_bytes();
    control.Resume();
  };
  const JobRun run = TrainOn(*host, spec, hooks, &control);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(bytes_paused, CudaKernelSizes().StreamWorkspaceBytes());
  EXPECT_TRUE(CheckpointTensorFiles(spec) == WhatItComesTo().files);
}

TEST(CudaMemoryTest, APoolIsPinnedAsAWholeWithProgress) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  std::vector<int64_t> done;
  ASSERT_TRUE(host->ReservePool(
                      600 * kMiB,
                      [&](int64_t bytes, int64_t capacity) {
                        EXPECT_EQ(capacity, 600 * kMiB);
                        done.push_back(bytes);
                      },
                      nullptr)
                  .ok());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), 600 * kMiB);
  EXPECT_GE(gpu.edge().registered_bytes(), 600 * kMiB);
  EXPECT_THAT(host->DescribePool(), HasSubstr("pinned"));
  EXPECT_EQ(host->budget().devices.first, "cuda:0");
  EXPECT_GT(host->budget().memory.device_bytes, 3 * kGiB);
}

TEST(CudaMemoryTest, APoolThatCannotBePinnedIsNone) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  const int64_t before = gpu.edge().registered_bytes();
  gpu.edge().Fail("HostRegister", kCudaMemoryAllocation);
  const absl::Status status = host->ReservePool(64 * kMiB, nullptr, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("RLIMIT_MEMLOCK"));
  EXPECT_FALSE(host->has_pool());
  EXPECT_EQ(gpu.edge().registered_bytes(), before);
  // Nor does a job go on with memory that is not pinned.
  const JobRun run = TrainOn(*host, Job("unpinned"));
  EXPECT_EQ(run.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(run.status), HasSubstr("RLIMIT_MEMLOCK"));
}

TEST(CudaMemoryTest, PinningIsAbandonedWhenToldSo) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  const int64_t before = gpu.edge().registered_bytes();
  int asked = 0;
  EXPECT_EQ(host->ReservePool(64 * kMiB, nullptr, [&] { return ++asked > 1; }).code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(gpu.edge().registered_bytes(), before);
  EXPECT_FALSE(host->has_pool());
}

TEST(CudaMemoryTest, ACardThatIsTooSmallIsRefusedWithTheTable) {
  EmulatedGpu gpu({.memory_bytes = (256 + 48) * kMiB});
  const auto host = Host(gpu);
  const JobRun run = TrainOn(*host, Job("small"));
  EXPECT_EQ(run.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(run.status), HasSubstr("stream workspace"));
  EXPECT_THAT(Message(run.status), HasSubstr("device memory: needs"));
  EXPECT_TRUE(run.records.empty());
}

// Memory is taken before the first step and after a pause, never in a step.
TEST(CudaMemoryTest, MemoryThatIsGoneAfterAPauseIsWaitedFor) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  const JobSpec spec = Job("gone");
  TrainingControl control;
  int pauses = 0;
  Hooks hooks;
  hooks.step = [&](int64_t step) {
    if (step == 1) control.Pause();
  };
  hooks.paused = [&] {
    // The second one is the job's own: another has the memory. Then it is there again.
    gpu.edge().Fail("Malloc", ++pauses == 1 ? kCudaMemoryAllocation : kCudaSuccess);
    control.Resume();
  };
  const JobRun run = TrainOn(*host, spec, hooks, &control);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(pauses, 2);
  EXPECT_TRUE(CheckpointTensorFiles(spec) == WhatItComesTo().files);
}

// A job that is evaluated after each step, and saved at its end alone.
JobSpec EvaluatedJob(const std::string& directory) {
  JobSpec spec = Job(directory);
  spec.checkpoint.every_steps = 0;
  spec.data.eval_fraction = 0.3;
  spec.training.eval_every = 1;
  return spec;
}

// Pauses the run in the midst of the evaluation of step 2. Then calls `lose`, which takes the
// device from it, and stops or releases it.
void EndInTheSecondEvaluation(HookedRun& hooked, bool release, std::function<void()> lose) {
  struct State {
    bool running = false, paused = false;
  };
  const auto state = std::make_shared<State>();
  hooked.activity = [state](const TrainingActivity& now) {
    state->running = now.phase == TrainingPhase::kRunning;
  };
  hooked.alive = [state, &hooked, training_thread = std::this_thread::get_id()] {
    if (std::this_thread::get_id() != training_thread || !state->running || state->paused) return;
    if (hooked.run.records.size() == 1) hooked.control.Pause();
  };
  hooked.paused = [state, &hooked, release, lose = std::move(lose)](const TrainingPause&) {
    state->paused = true;
    lose();
    if (release) {
      hooked.control.Release();
    } else {
      hooked.control.Stop();
    }
  };
}

// Stopped and released in the midst of the evaluation of step 2.
TEST(CudaMemoryTest, ARunThatEndsWhileOthersHaveTheMemoryIsSaved) {
  for (const bool release : {false, true}) {
    EmulatedGpu gpu;
    const auto host = Host(gpu);
    const JobSpec spec = EvaluatedJob("ends");
    HookedRun hooked;
    EndInTheSecondEvaluation(hooked, release,
                             [&] { gpu.edge().Fail("Malloc", kCudaMemoryAllocation); });
    const auto outcome = hooked.Train(*host, spec);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, release ? TrainingOutcome::kReleased : TrainingOutcome::kInterrupted);
    EXPECT_THAT(hooked.events,
                ElementsAre("started 1", "step 1", "paused", "step 2", "checkpoint 2"));
    EXPECT_TRUE(hooked.run.records[0].eval_loss.has_value());
    EXPECT_FALSE(hooked.run.records[1].eval_loss.has_value());
    EXPECT_THAT(hooked.run.messages,
                Contains(HasSubstr("step 2: its evaluation was not finished")));
  }
}

// Another process could go on from the checkpoint before: a run that has lost its device has not
// ended as it was told.
TEST(CudaMemoryTest, ADeviceLostWhileTheRunEndsInAnEvaluationFailsTheRun) {
  for (const bool release : {false, true}) {
    EmulatedGpu gpu;
    const auto host = Host(gpu);
    const JobSpec spec = EvaluatedJob("lost_at_the_end");
    HookedRun hooked;
    EndInTheSecondEvaluation(
        hooked, release, [&] { gpu.edge().Fail("Malloc", kIllegalAddress, 0, /*sticky=*/true); });
    const absl::Status status = hooked.Train(*host, spec).status();
    EXPECT_TRUE(IsDeviceLost(status)) << status;
    EXPECT_THAT(hooked.events, ElementsAre("started 1", "step 1", "paused"));
  }
}

// What was left out of step 2 says nothing of step 3, whose evaluation fails by itself.
TEST(CudaMemoryTest, AReleaseThatCouldNotSaveLeavesNothingMoreOut) {
  FullDiskFileSystem disk(PosixFileSystem());
  EmulatedGpu gpu;
  EngineHostOptions options;
  options.files = &disk;
  const auto host = Host(gpu, "cuda", options);
  JobSpec spec = Job("not_released");
  spec.checkpoint.every_steps = 0;
  spec.data.eval_fraction = 0.3;
  spec.training.eval_every = 1;
  HookedRun hooked;
  hooked.options.pause_on_full_disk = true;
  bool running = false;
  int pauses = 0;
  hooked.activity = [&](const TrainingActivity& now) {
    running = now.phase == TrainingPhase::kRunning;
  };
  const std::thread::id training_thread = std::this_thread::get_id();
  hooked.alive = [&] {
    if (std::this_thread::get_id() != training_thread || !running) return;
    if (hooked.run.records.size() == 1 && pauses == 0) hooked.control.Pause();
    if (hooked.run.records.size() == 2) gpu.edge().Fail("Launch", kIllegalAddress);
  };
  hooked.paused = [&](const TrainingPause& pause) {
    if (++pauses == 1) {
      gpu.edge().Fail("Malloc", kCudaMemoryAllocation);
      disk.FillAfter(0);
      hooked.control.Release();
    } else {
      EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
      gpu.edge().Fail("Malloc", kCudaSuccess);
      disk.MakeRoom();
      hooked.control.Resume();
    }
  };
  EXPECT_THAT(Message(hooked.Train(*host, spec).status()), HasSubstr("700"));
  EXPECT_EQ(pauses, 2);
  EXPECT_EQ(hooked.run.records.size(), 2u);
}

TEST(CudaMemoryTest, TheOutputIsWrittenWhileOthersHaveTheMemory) {
  FullDiskFileSystem disk(PosixFileSystem());
  EmulatedGpu gpu;
  EngineHostOptions options;
  options.files = &disk;
  const auto host = Host(gpu, "cuda", options);
  JobSpec spec = Job("output");
  spec.output.directory = spec.checkpoint.directory + "_model";
  HookedRun hooked;
  hooked.options.pause_on_full_disk = true;
  bool paused = false;
  hooked.activity = [&](const TrainingActivity& now) {
    if (absl::StrContains(now.what, "output") && !paused) disk.FillAfter(2);
  };
  hooked.paused = [&](const TrainingPause& pause) {
    EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
    if (std::exchange(paused, true)) hooked.control.Cancel();
    disk.MakeRoom();
    gpu.edge().Fail("Malloc", kCudaMemoryAllocation);
    hooked.control.Resume();
  };
  const auto outcome = hooked.Train(*host, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
  EXPECT_TRUE(paused);
  EXPECT_TRUE(PosixFileSystem()->FileExists(spec.output.directory + "/config.json"));
}

TEST(CudaMemoryTest, MemoryThatIsNotGivenAtAllIsAnErrorWithTheBytes) {
  EmulatedGpu gpu;
  const auto host = Host(gpu);
  gpu.edge().Fail("Malloc", kCudaMemoryAllocation);
  const JobRun run = TrainOn(*host, Job("no_memory"));
  EXPECT_EQ(run.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(run.status), HasSubstr("cuda: a block of "));
}

}  // namespace
}  // namespace megatrain

// Jobs on several emulated GPUs, which exchange by a fake NCCL.
#ifndef MEGATRAIN_TESTS_ENGINE_RUN_CUDA_RANKS_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_RUN_CUDA_RANKS_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/engine/comm/fake_nccl.h"
#include "tests/engine/run/cuda_job_fixture.h"

namespace megatrain {

// GPUs of a machine, with a host that has opened them.
struct Machine {
  explicit Machine(int count, EmulatedCudaOptions options = {})
      : gpu([&] {
          options.devices = count;
          return options;
        }()),
        nccl(count),
        host(Host(gpu, "cuda", {.devices = 0, .load_nccl = nccl.loader()})) {
    EXPECT_TRUE(host->ReservePool(int64_t{64} << 20, nullptr, nullptr).ok());
  }

  EmulatedGpu gpu;
  FakeNcclLoader nccl;
  std::unique_ptr<EngineHost> host;
};

// Four micro-batches a step, so that three GPUs have different numbers of them.
inline JobSpec JobOf(int64_t devices, const std::string& directory) {
  JobSpec spec = Job(directory);
  spec.training.global_batch = 4;
  spec.training.steps = 2;
  spec.engine.devices = devices;
  return spec;
}

inline void ExpectSame(const JobRun& run, const JobRun& expected) {
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (size_t k = 0; k < run.records.size(); ++k) {
    EXPECT_EQ(run.records[k].loss, expected.records[k].loss) << "step " << k + 1;
    EXPECT_EQ(run.records[k].gradient_norm, expected.records[k].gradient_norm);
  }
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_RUN_CUDA_RANKS_FIXTURE_H_

// Plans for the cpu device, whose memory is the host's.
#include <gtest/gtest.h>

#include "engine/host/hardware_rates.h"
#include "engine/plan/memory_plan.h"
#include "tests/engine/plan/memory_plan_fixture.h"

namespace megatrain {
namespace {

// It is more than half of what is free besides the host state.
TEST_F(MemoryPlanTest, TheCpuDeviceIsGivenWhatTheSmallestPlanTakes) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  JobSpec spec = Spec();
  spec.data.sequence_length = 512;
  spec.training.global_batch = spec.training.micro_batch;
  for (const StashPlace stash : {StashPlace::kDevice, StashPlace::kHost}) {
    spec.engine.stash = stash;
    JobSpec smallest = spec;
    smallest.engine.recompute = RecomputeMode::kAll;
    const MemoryPlan least = Plan(smallest, layout);
    ASSERT_TRUE(least.fits) << least.Table();
    const MemoryPlan plan = Plan(spec, layout, Budget(least.host_bytes));
    EXPECT_TRUE(plan.fits) << plan.Table();
    EXPECT_EQ(plan.device_bytes, least.device_bytes);
    EXPECT_FALSE(Plan(spec, layout, Budget(least.host_bytes - 1)).fits);
  }
}

// The largest sweep for the device has a stash on the host that does not fit there. With tied
// embeddings all small sweeps stash much, and recomputing alone makes room.
TEST_F(MemoryPlanTest, AJobThatFitsTheHostInSmallSweepsIsPlannedSo) {
  for (const bool tied : {false, true}) {
    const ModelLayout layout = BuildModelLayout(Config(6, tied));
    for (const StashPlace stash : {StashPlace::kAuto, StashPlace::kHost}) {
      JobSpec spec = Spec();
      spec.training.global_batch = 512;
      spec.engine.stash = stash;
      JobSpec small = spec;
      small.engine.recompute = RecomputeMode::kAll;
      small.engine.micro_batches_per_sweep = 8;
      const int64_t least = Plan(small, layout).host_bytes;
      for (int64_t more = 0; more < 64 << 20; more += 4 << 20) {
        const MemoryPlan plan = Plan(spec, layout, Budget(least + more));
        EXPECT_TRUE(plan.fits) << tied << ", " << more << " bytes more\n" << plan.Table();
        EXPECT_LE(plan.host_bytes, least + more);
      }
    }
  }
}

// No plan whose time was predicted fits.
TEST_F(MemoryPlanTest, AHostOfKnownRatesIsNoReasonToRefuseASmallPlan) {
  HardwareRates rates;
  rates.fp32 = rates.bf16 = {1e9, 1e9, 1e9, 1e9, 1e9};
  rates.h2d_bytes_per_second = rates.d2h_bytes_per_second = 1e9;
  rates.threads = 4;
  rates.device_is_host = true;
  const ModelLayout layout = BuildModelLayout(Config(6, /*tied=*/true));
  JobSpec spec = Spec();
  spec.training.global_batch = 512;
  JobSpec small = spec;
  small.engine.recompute = RecomputeMode::kAll;
  small.engine.micro_batches_per_sweep = 8;
  const MemoryBudget budget = Budget(Plan(small, layout).host_bytes);
  const auto plan = PlanMemory(spec, layout, kernels_, budget, {rates, {.threads = 4}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->fits) << plan->Table();
  EXPECT_TRUE(plan->predicted.has_value());
}

TEST_F(MemoryPlanTest, WhatTheJobFixesStaysSoWhereTheHostIsTooSmall) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  JobSpec spec = Spec();
  spec.training.global_batch = 512;
  spec.optimizer.max_gradient_norm = 0;
  JobSpec small = spec;
  small.engine.recompute = RecomputeMode::kAll;
  small.engine.micro_batches_per_sweep = 8;
  const MemoryBudget budget = Budget(Plan(small, layout).host_bytes);
  EXPECT_TRUE(Plan(spec, layout, budget).fits);
  JobSpec one_sweep = spec;
  one_sweep.engine.micro_batches_per_sweep = 256;
  EXPECT_FALSE(Plan(one_sweep, layout, budget).fits);
  JobSpec few_slabs = spec;  // which hold no sums of several sweeps
  few_slabs.engine.gradient_slabs = 3;
  EXPECT_FALSE(Plan(few_slabs, layout, budget).fits);
  small.engine.recompute = RecomputeMode::kNone;
  EXPECT_FALSE(Plan(small, layout, budget).fits);
}

}  // namespace
}  // namespace megatrain

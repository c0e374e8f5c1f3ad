#include "engine/plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/reference_kernels.h"
#include "engine/model/head/language_head.h"
#include "engine/model/tile.h"
#include "engine/plan/trained_tensors.h"
#include "tests/engine/plan/memory_plan_fixture.h"

namespace megatrain {
namespace {

using testing::HasSubstr;

TEST_F(MemoryPlanTest, WhatIsPlannedIsWhatIsTaken) {
  for (const bool tied : {false, true}) {
    for (const double clip : {0.0, 1.0}) {
      for (const StashPlace stash : {StashPlace::kDevice, StashPlace::kHost}) {
        JobSpec spec = Spec();
        spec.optimizer.max_gradient_norm = clip;
        spec.engine.stash = stash;
        const ModelLayout layout = BuildModelLayout(Config(3, tied));
        const MemoryPlan plan = Plan(spec, layout);
        ASSERT_TRUE(plan.fits) << plan.Table();
        HostPoolOptions options;
        options.capacity = plan.pool_bytes;
        auto pool = *HostPool::Create(options);
        auto tiles = LeaseTiles(plan.dimensions, {-1}, *pool);
        ASSERT_TRUE(tiles.ok()) << tiles.status();
        auto buffers = LeaseHostBuffers(plan.dimensions, -1, *pool);
        ASSERT_TRUE(buffers.ok()) << buffers.status();
        EXPECT_EQ(pool->free_bytes(), 0);
        DeviceArena arena(nullptr, plan.arena_bytes);
        ASSERT_TRUE(ReserveDeviceBuffers(plan.dimensions, kernels_, arena).ok());
        EXPECT_EQ(arena.free_bytes(), 0);
      }
    }
  }
}

// Found by halving, so that a plan of thousands of micro-batches is a matter of moments.
TEST_F(MemoryPlanTest, ASweepIsAsLargeAsTheDeviceHolds) {
  for (const bool tied : {false, true}) {
    const ModelLayout layout = BuildModelLayout(Config(3, tied));
    JobSpec spec = Spec();
    spec.training.global_batch = 97;
    spec.training.micro_batch = 1;
    spec.engine.micro_batches_per_sweep = 23;
    spec.engine.recompute = RecomputeMode::kAll;
    spec.engine.stash = StashPlace::kDevice;
    spec.engine.device_memory = Plan(spec, layout).arena_bytes;
    spec.engine.micro_batches_per_sweep = 0;
    const MemoryPlan plan = Plan(spec, layout);
    EXPECT_TRUE(plan.fits);
    EXPECT_EQ(plan.dimensions.shape.sweep_micro_batches, 23) << "what so many take is all there is";
  }
}

TEST_F(MemoryPlanTest, DeviceBytesDoNotDependOnDepthWithTheStashOnTheHost) {
  JobSpec spec = Spec();
  spec.engine.stash = StashPlace::kHost;
  spec.engine.recompute = RecomputeMode::kAll;
  const ModelLayout shallow = BuildModelLayout(Config(4)), deep = BuildModelLayout(Config(48));
  EXPECT_EQ(Plan(spec, shallow).arena_bytes, Plan(spec, deep).arena_bytes);
}

TEST_F(MemoryPlanTest, StateIsTwelveBytesAParameterAndClippingHoldsTheGradients) {
  ModelDescription config = Config(8);
  config.hidden = 512;
  for (LayerDescription& layer : config.layers) {
    layer.attention.head_dim = 128;
    layer.feed_forward.intermediate = 2048;
  }
  const ModelLayout layout = BuildModelLayout(config);
  auto bytes = [&](const MemoryPlan& plan, const char* name) {
    for (const auto& item : plan.host) {
      if (item.name == name) return static_cast<double>(item.bytes) / layout.parameters;
    }
    return 0.0;
  };
  for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
    JobSpec spec = Spec();
    spec.training.precision = precision;
    MemoryPlan plan = Plan(spec, layout);
    EXPECT_LE(bytes(plan, "tiles"), 12.5);  // leases are whole huge pages: 2 MiB of 35 here
    EXPECT_GE(bytes(plan, "tiles"), 12.0);
    EXPECT_NEAR(bytes(plan, "gradient slabs"), 4.0, 0.5);
    spec.training.gradient_dtype = Precision::kBf16;
    EXPECT_NEAR(bytes(Plan(spec, layout), "gradient slabs"), 2.0, 0.5);
    spec.optimizer.max_gradient_norm = 0;
    spec.engine.gradient_slabs = 1;
    EXPECT_LE(bytes(Plan(spec, layout), "gradient slabs"), 0.5);
  }
}

TEST_F(MemoryPlanTest, ACheckpointHasTheStateTheFrozenWeightsAndWhatAWrapperCarries) {
  ModelDescription config = Config(3);
  config.wrapper.carried_bytes = 1000;
  const ModelLayout all = BuildModelLayout(config), alone = BuildModelLayout(Config(3));
  for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
    JobSpec spec = Spec();
    spec.training.precision = precision;
    const int64_t bytes = Plan(spec, all).checkpoint_bytes;
    EXPECT_EQ(bytes - Plan(spec, alone).checkpoint_bytes, 1000);
    EXPECT_GE(bytes, 12 * all.parameters + 1000);
    spec.training.freeze = {"model.layers.0.*"};
    const auto layout = BuildTrainingLayout(config, spec);
    ASSERT_TRUE(layout.ok()) << layout.status();
    int64_t frozen = 0;
    for (const TileLayout& tile : layout->tiles) frozen += tile.stateless_elements;
    EXPECT_GE(frozen, layout->parameters - layout->trained_parameters);
    ASSERT_GT(frozen, 0);
    // Of a frozen element the weight alone is kept, of 2 or 4 bytes.
    EXPECT_EQ(bytes - Plan(spec, *layout).checkpoint_bytes,
              (precision == Precision::kBf16 ? 10 : 8) * frozen);
  }
}

TEST_F(MemoryPlanTest, LessDeviceMemoryKeepsLessThenStashesOnTheHostThenSweeps) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  JobSpec spec = Spec();
  const MemoryPlan rich = Plan(spec, layout);
  EXPECT_EQ(rich.dimensions.shape.kept_everything, 6 * 4);
  EXPECT_THAT(rich.Table(),
              HasSubstr("micro-batches a step: 4, a sweep: 4; stash on the device; layers kept "
                        "whole: 24 of 24, norms recomputed: 0, recomputed: 0 "));
  int64_t limit = rich.arena_bytes;
  int last_kept = 24, seen_host = 0, seen_sweeps = 0;
  while (true) {
    limit = limit * 15 / 16;
    spec.engine.device_memory = limit;
    const MemoryPlan plan = Plan(spec, layout);
    if (!plan.fits) {
      EXPECT_THAT(plan.misfit, HasSubstr("device memory: needs"));
      break;
    }
    EXPECT_LE(plan.arena_bytes, limit);
    const PipelineShape& shape = plan.dimensions.shape;
    if (!shape.stash_on_host && shape.sweep_micro_batches == 4) {
      EXPECT_LE(shape.kept, last_kept);
      last_kept = shape.kept;
    }
    seen_host += shape.stash_on_host;
    seen_sweeps += shape.sweep_micro_batches < 4;
  }
  EXPECT_LT(last_kept, 24);
  EXPECT_GT(seen_host, 0);
  EXPECT_GT(seen_sweeps, 0);
}

// Each of the two sweeps has a half of the shards; the first may have a micro-batch more.
TEST_F(MemoryPlanTest, WithShardsOfTheGradientThereAreTwoSweepsAtMost) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  JobSpec spec = Spec();
  spec.training.global_batch = 10;  // five micro-batches
  spec.training.gradient_shards = 2;
  int64_t limit = Plan(spec, layout).arena_bytes;
  int sweep = 5;
  while (true) {
    limit = limit * 63 / 64;
    spec.engine.device_memory = limit;
    const MemoryPlan plan = Plan(spec, layout);
    if (!plan.fits) break;
    sweep = plan.dimensions.shape.sweep_micro_batches;
    ASSERT_GE(sweep, 3);
  }
  EXPECT_LT(sweep, 5);
}

TEST_F(MemoryPlanTest, AJobThatDoesNotFitSaysSoInBytes) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  const MemoryPlan plan = Plan(Spec(), layout, Budget(1 << 20));
  EXPECT_FALSE(plan.fits);
  EXPECT_THAT(plan.Table(), HasSubstr("does not fit: host memory: needs"));
  EXPECT_THAT(plan.Table(), HasSubstr("tiles"));
  JobSpec spec = Spec();
  spec.engine.device_memory = 1;
  const MemoryPlan neither = Plan(spec, layout, Budget(1 << 20));
  EXPECT_THAT(neither.misfit, HasSubstr("host memory: needs"));
  EXPECT_THAT(neither.misfit, HasSubstr("; device memory: needs"));
  // What is told as needed is what the smallest step takes.
  EXPECT_EQ(neither.dimensions.shape.sweep_micro_batches, 1);
  EXPECT_EQ(neither.dimensions.shape.kept, 0);
  EXPECT_TRUE(neither.dimensions.shape.stash_on_host);
}

// Slabs hold gradients until the norm is known, or sums between sweeps. Else a few take turns.
TEST_F(MemoryPlanTest, SlabsAreOneATileWhereTheyMustHoldGradients) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  JobSpec spec = Spec();
  const auto slabs = [&] {
    const PipelineShape shape = Plan(spec, layout).dimensions.shape;
    EXPECT_EQ(shape.slab_per_tile, shape.gradient_slabs == layout.tile_count());
    return shape.gradient_slabs;
  };
  EXPECT_EQ(slabs(), 8);
  spec.optimizer.max_gradient_norm = 0;
  EXPECT_EQ(slabs(), 4);
  spec.engine.gradient_slabs = 3;
  EXPECT_EQ(slabs(), 3);
  spec.engine.micro_batches_per_sweep = 4;
  EXPECT_EQ(slabs(), 3);
  spec.engine.micro_batches_per_sweep = 2;
  EXPECT_THAT(PlanMemory(spec, layout, kernels_, Budget()).status().message(),
              HasSubstr("engine.gradient_slabs: 3 cannot hold the gradients that several sweeps"));
  spec.engine.gradient_slabs = 0;
  EXPECT_EQ(slabs(), 8);
}

// The sums of several sweeps are kept in FP32.
TEST_F(MemoryPlanTest, Bf16GradientsSaveTheirMemoryInAStepOfOneSweepAlone) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  JobSpec spec = Spec();
  const auto slab_bytes = [&](Precision dtype, int64_t sweep) {
    spec.training.gradient_dtype = dtype;
    spec.engine.micro_batches_per_sweep = sweep;
    for (const MemoryPlan::Item& item : Plan(spec, layout).host) {
      if (item.name == "gradient slabs") return static_cast<double>(item.bytes);
    }
    return 0.0;
  };
  const double whole = slab_bytes(Precision::kFp32, 4);
  EXPECT_NEAR(slab_bytes(Precision::kBf16, 4), whole / 2, 0.05 * whole);
  EXPECT_EQ(slab_bytes(Precision::kBf16, 2), whole);
  EXPECT_EQ(slab_bytes(Precision::kFp32, 2), whole);
}

TEST_F(MemoryPlanTest, AJobMayLimitItsHostMemoryToLessThanThereIs) {
  const ModelLayout layout = BuildModelLayout(Config(6));
  JobSpec spec = Spec();
  EXPECT_EQ(Plan(spec, layout).host_limit, Budget().host_bytes);
  spec.engine.host_memory = 2 << 20;
  EXPECT_EQ(Plan(spec, layout).host_limit, 2 << 20);
  const MemoryPlan plan = Plan(spec, layout, Budget(1 << 20));
  EXPECT_EQ(plan.host_limit, 1 << 20) << "and not to more";
  EXPECT_FALSE(plan.fits);
}

TEST_F(MemoryPlanTest, ContradictingSettingsAreRefused) {
  const ModelLayout layout = BuildModelLayout(Config(2));
  JobSpec spec = Spec();
  spec.engine.gradient_slabs = 2;
  EXPECT_THAT(PlanMemory(spec, layout, kernels_, Budget()).status().message(),
              HasSubstr("engine.gradient_slabs: 2"));
  spec.engine.gradient_slabs = layout.tile_count();
  EXPECT_TRUE(PlanMemory(spec, layout, kernels_, Budget()).ok()) << "one a tile";
  spec.engine.gradient_slabs = 2;
  spec.optimizer.max_gradient_norm = 0;
  EXPECT_TRUE(PlanMemory(spec, layout, kernels_, Budget()).ok()) << "nothing waits for the norm";
  spec = Spec();
  spec.data.sequence_length = 1024;
  EXPECT_THAT(PlanMemory(spec, layout, kernels_, Budget()).status().message(),
              HasSubstr("512 positions"));
}

TEST_F(MemoryPlanTest, HeadsThatKernelsDoNotTakeAreRefused) {
  const CudaKernelSizes sizes;
  ModelDescription model = UniformModel({.vocabulary = 259,
                                         .hidden = 64,
                                         .layers = 2,
                                         .heads = 2,
                                         .kv_heads = 2,
                                         .head_dim = 512,
                                         .intermediate = 64,
                                         .max_positions = 4096});
  EXPECT_TRUE(CheckHeadSizes(model, sizes).ok());
  model.layers[1].attention.head_dim = 514;
  const ModelLayout layout = BuildModelLayout(model);
  for (const auto& plan : {PlanMemory(Spec(), layout, sizes, Budget()),
                           PlanEvaluation(Spec(), layout, sizes, Budget())}) {
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(plan.status().message()),
                HasSubstr("layer 1 has heads of 514 elements, and the kernels of this device take "
                          "at most 512"));
  }
  AttentionDescription& wide = model.layers[1].attention;
  wide.head_dim = 192;
  wide.latent = {.key_value_rank = 16, .rotary_dim = 64, .value_dim = 768};
  EXPECT_THAT(std::string(CheckHeadSizes(model, sizes).message()), HasSubstr("heads of 768"));
  model.layers[1].attention = AttentionDescription();
  model.layers[1].delta_net = {
      .key_heads = 1, .value_heads = 1, .key_dim = 512, .value_dim = 8, .kernel = 4};
  EXPECT_THAT(std::string(CheckHeadSizes(model, sizes).message()),
              HasSubstr("linear_key_head_dim: layer 1 has heads of 512"));
}

TEST_F(MemoryPlanTest, AStepOfTooManyMicroBatchesIsRefused) {
  const ModelLayout layout = BuildModelLayout(Config(4));
  JobSpec spec = Spec();
  spec.training.micro_batch = 2;
  spec.training.global_batch = kStepLayerPassesMax / 4 * 2 + 2;
  const absl::Status refused = PlanMemory(spec, layout, kernels_, Budget()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("training.global_batch: 524290"));
  EXPECT_THAT(refused.message(), HasSubstr("with 4 layers at most 262144"));
  const ModelLayout tied = BuildModelLayout(Config(4, /*tied=*/true));
  EXPECT_THAT(PlanMemory(spec, tied, kernels_, Budget()).status().message(),
              HasSubstr("with 4 layers at most 262144"));
  spec.training.micro_batch = 262145;
  EXPECT_TRUE(PlanMemory(spec, layout, kernels_, Budget()).ok());
}

TEST_F(MemoryPlanTest, AMicroBatchOfTooManyTokensIsRefused) {
  const ModelLayout layout = BuildModelLayout(Config(4));
  JobSpec spec = Spec();
  spec.training.micro_batch = spec.training.global_batch = 1 << 24;
  const absl::Status refused = PlanMemory(spec, layout, kernels_, Budget()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("training.micro_batch: 16777216"));
  EXPECT_THAT(refused.message(), HasSubstr("at most 16777215"));
  spec.training.micro_batch = spec.training.global_batch = 16777215;
  EXPECT_TRUE(PlanMemory(spec, layout, kernels_, Budget()).ok());
}

// The choices of all tokens are numbered in 32 bits.
TEST_F(MemoryPlanTest, AMicroBatchOfTooManyChoicesOfExpertsIsRefused) {
  ModelDescription model = Config(2);
  LayerDescription& layer = model.layers[1];
  layer.feed_forward.intermediate = 0;
  layer.experts.count = 8;
  layer.experts.chosen = 4;
  layer.experts.intermediate = 32;
  layer.experts.experts_per_tile = 4;
  const ModelLayout layout = BuildModelLayout(model);
  JobSpec spec = Spec();
  spec.training.micro_batch = spec.training.global_batch = 4'194'304;
  const absl::Status refused = PlanMemory(spec, layout, kernels_, Budget()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at most 4194303 such sequences"));
}

// A pool that is reserved already and what lies beside it are two limits.
TEST_F(MemoryPlanTest, AReservedPoolIsALimitOfItsOwn) {
  const ModelLayout layout = BuildModelLayout(Config(3));
  const MemoryPlan free = Plan(Spec(), layout);
  ASSERT_TRUE(free.fits);
  const int64_t beside = free.host_bytes - free.pool_bytes;
  MemoryBudget budget;
  budget.pool_bytes = free.pool_bytes;
  budget.host_bytes = free.pool_bytes + 4 * beside;
  EXPECT_TRUE(Plan(Spec(), layout, budget).fits);

  budget.pool_bytes = free.pool_bytes - 4096;
  MemoryPlan plan = Plan(Spec(), layout, budget);
  EXPECT_FALSE(plan.fits) << "what is free beside the pool is of no use to it";
  EXPECT_THAT(plan.misfit, HasSubstr("host pool"));

  budget.pool_bytes = 8 * free.pool_bytes;
  budget.host_bytes = budget.pool_bytes + (int64_t{1} << 20);
  plan = Plan(Spec(), layout, budget);
  EXPECT_FALSE(plan.fits) << "the pool's room is of no use to the process";
  EXPECT_THAT(plan.misfit, HasSubstr("beside the pool"));

  // Too little for all activations: the device takes less, and the job fits still.
  budget.host_bytes = budget.pool_bytes + beside;
  plan = Plan(Spec(), layout, budget);
  EXPECT_TRUE(plan.fits) << plan.misfit;
  EXPECT_LT(plan.arena_bytes, free.arena_bytes);
}

TEST_F(MemoryPlanTest, HugePagesHoldThePoolWhereMoreIsSetAsideThanFree) {
  const ModelLayout layout = BuildModelLayout(Config(3));
  const MemoryPlan free = Plan(Spec(), layout);
  const int64_t beside = free.host_bytes - free.pool_bytes;
  MemoryBudget budget;
  budget.SetHost({.free_bytes = beside, .set_aside_bytes = 8 * free.host_bytes});
  EXPECT_EQ(budget.pool_bytes, 8 * free.host_bytes);
  EXPECT_EQ(budget.host_bytes, beside + 8 * free.host_bytes);
  EXPECT_TRUE(Plan(Spec(), layout, budget).fits);

  budget.SetHost({.free_bytes = 4 * free.host_bytes, .set_aside_bytes = free.pool_bytes});
  EXPECT_LT(budget.pool_bytes, 0);
  EXPECT_EQ(budget.host_bytes, 4 * free.host_bytes);
}

// Kernels with memory of their own on the host.
class ScratchKernels : public ReferenceKernels {
 public:
  int64_t ScratchBytesMax() const override { return int64_t{300} << 20; }
};

TEST_F(MemoryPlanTest, WhatKernelsHoldOnTheHostIsTheProcesss) {
  const ModelLayout layout = BuildModelLayout(Config(3));
  const ScratchKernels kernels;
  const auto plan = PlanMemory(Spec(), layout, kernels, Budget());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const MemoryPlan without = Plan(Spec(), layout);
  const int64_t scratch = kernels.ScratchBytesMax();
  EXPECT_EQ(plan->process_bytes, without.process_bytes + scratch);
  EXPECT_EQ(plan->host_bytes, without.host_bytes + scratch);
}

TEST_F(MemoryPlanTest, ALayersChunksAreEvenAndFollowFromTheMicroBatchAlone) {
  EXPECT_EQ(LayerChunkTokens(1), 1);
  EXPECT_EQ(LayerChunkTokens(16'384), 16'384);
  EXPECT_EQ(LayerChunkTokens(16'385), 8704) << "not 16,384 and one token";
  EXPECT_EQ(LayerChunkTokens(32'768), 16'384);
  for (const int64_t tokens : {16'400, 50'000, 99'999, 1'000'000}) {
    const int64_t chunk = LayerChunkTokens(tokens);
    EXPECT_LE(chunk, 16'384);
    EXPECT_EQ(chunk % 512, 0);
    EXPECT_EQ((tokens + chunk - 1) / chunk, (tokens + 16'383) / 16'384) << tokens;
  }
}

}  // namespace
}  // namespace megatrain

// The plan of several ranks: what they share, what each has, and what they exchange.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/host_pool.h"
#include "engine/pipeline/buffers.h"
#include "engine/plan/memory_plan.h"
#include "tests/engine/plan/memory_plan_fixture.h"

namespace megatrain {
namespace {

using testing::HasSubstr;

TEST_F(MemoryPlanTest, RanksShareTheTilesAndHaveTheOtherBuffersEach) {
  for (const bool tied : {false, true}) {
    for (const double clip : {0.0, 1.0}) {
      JobSpec spec = Spec();
      spec.training.micro_batch = 1;
      spec.optimizer.max_gradient_norm = clip;
      spec.engine.devices = 3;
      const ModelLayout layout = BuildModelLayout(Config(3, tied));
      const MemoryPlan plan = Plan(spec, layout);
      ASSERT_TRUE(plan.fits) << plan.Table();
      HostPoolOptions options;
      options.capacity = plan.pool_bytes;
      auto pool = *HostPool::Create(options);
      auto tiles = LeaseTiles(plan.dimensions, {-1, -1, -1}, *pool);
      ASSERT_TRUE(tiles.ok()) << tiles.status();
      std::vector<HostBuffers> ranks;
      for (int rank = 0; rank < 3; ++rank) {
        PipelineDimensions d = plan.dimensions;
        d.shape.rank = rank;
        auto buffers = LeaseHostBuffers(d, -1, *pool);
        ASSERT_TRUE(buffers.ok()) << buffers.status();
        ranks.push_back(*std::move(buffers));
        DeviceArena arena(nullptr, plan.arena_bytes);
        ASSERT_TRUE(ReserveDeviceBuffers(d, kernels_, arena).ok());
        EXPECT_EQ(arena.free_bytes(), 0);
      }
      EXPECT_EQ(pool->free_bytes(), 0);
    }
  }
}

// Ranks hold parts of a tile. The export, and the hash of the model that answers are compared with,
// take it whole beside a pool that is full.
TEST_F(MemoryPlanTest, ATileThatIsReadWholeIsCountedBesideThePool) {
  const ModelLayout layout = BuildModelLayout(Config(3));
  JobSpec spec = Spec();
  const auto more_for_the_export = [&](int devices, Precision precision) {
    spec.engine.devices = devices;
    spec.training.precision = precision;
    spec.output.directory = "";
    const MemoryPlan without = Plan(spec, layout);
    spec.output.directory = "/out";
    const MemoryPlan plan = Plan(spec, layout);
    EXPECT_EQ(plan.pool_bytes, without.pool_bytes);
    EXPECT_EQ(plan.host_bytes - without.host_bytes, plan.process_bytes - without.process_bytes);
    return plan.process_bytes - without.process_bytes;
  };
  EXPECT_EQ(more_for_the_export(1, Precision::kBf16), 0) << "a rank alone has whole tiles";
  EXPECT_EQ(more_for_the_export(2, Precision::kBf16), 2 * layout.tile_elements_max);
  EXPECT_EQ(more_for_the_export(2, Precision::kFp32), 4 * layout.tile_elements_max);
  spec.training.precision = Precision::kBf16;
  spec.training.objective = Objective::kDpo;
  spec.training.dpo_reference_free = true;
  const int64_t weights_alone = Plan(spec, layout).process_bytes;
  spec.training.dpo_reference_free = false;
  EXPECT_EQ(Plan(spec, layout).process_bytes - weights_alone, 2 * layout.tile_elements_max);
}

// What is free besides the host state is that of all parts together.
TEST_F(MemoryPlanTest, PartsOfTheCpuHaveEqualPartsOfTheMemoryThatIsFree) {
  JobSpec spec = Spec();
  spec.data.sequence_length = 512;
  spec.engine.devices = 4;
  const ModelLayout layout = BuildModelLayout(Config(48));
  const MemoryPlan all = Plan(spec, layout);
  ASSERT_TRUE(all.fits) << all.Table();
  ASSERT_EQ(all.dimensions.shape.kept_everything, 48);
  // There is memory for three devices that keep everything.
  const MemoryPlan plan = Plan(spec, layout, Budget(all.host_bytes - all.device_bytes));
  EXPECT_TRUE(plan.fits) << plan.Table();
  EXPECT_LT(plan.device_limit, all.device_bytes);
  EXPECT_LT(plan.device_bytes, all.device_bytes);
}

// The devices are near two nodes, whose pages are the halves of the pool.
TEST_F(MemoryPlanTest, ARanksMemoryLiesNearItsDevice) {
  JobSpec spec = Spec();
  spec.training.micro_batch = 1;
  spec.engine.devices = 2;
  const ModelLayout layout = BuildModelLayout(Config(3, /*tied=*/false));
  const MemoryPlan plan = Plan(spec, layout);
  ASSERT_TRUE(plan.fits) << plan.Table();
  HostPoolOptions options;
  options.capacity = plan.pool_bytes;
  options.numa_nodes = {1000, 1001};
  auto pool = *HostPool::Create(options);
  const auto half = [&](const HostLease& lease) {
    const int64_t end =
        static_cast<char*>(lease.data()) + lease.bytes() - static_cast<char*>(pool->data());
    return end <= pool->capacity() / 2 ? 1000 : 1001;
  };
  const auto tiles = LeaseTiles(plan.dimensions, {1000, 1001}, *pool);
  ASSERT_TRUE(tiles.ok()) << tiles.status();
  ASSERT_EQ(std::ssize(*tiles), 2 * layout.tile_count());
  for (size_t i = 0; i < tiles->size(); ++i)
    EXPECT_EQ(half((*tiles)[i]), 1000 + static_cast<int>(i % 2));
  for (const int rank : {0, 1}) {
    PipelineDimensions d = plan.dimensions;
    d.shape.rank = rank;
    const auto buffers = LeaseHostBuffers(d, 1000 + rank, *pool);
    ASSERT_TRUE(buffers.ok()) << buffers.status();
    for (const HostLease& slab : buffers->slabs) EXPECT_EQ(half(slab), 1000 + rank);
    for (const HostLease& stash : buffers->stash) EXPECT_EQ(half(stash), 1000 + rank);
    for (const HostLease& batch : buffers->batch) EXPECT_EQ(half(batch), 1000 + rank);
  }
}

// A rank exchanges with the others in a step: weights twice in the type that is streamed, and
// gradients once in FP32, each without its own part.
TEST_F(MemoryPlanTest, RanksExchangeNoMoreThanTheyMust) {
  JobSpec spec = Spec();
  spec.training.micro_batch = 1;
  spec.engine.devices = 3;
  const ModelLayout layout = BuildModelLayout(Config(6, /*tied=*/false));
  const PipelineShape shape = Plan(spec, layout).dimensions.shape;
  PipelineState state;
  int64_t weights = 0, gradients = 0;
  BuildTrainingStep(shape, {8, 8}, state);
  for (const Op& op : BuildTrainingStep(shape, {8, 8}, state).ops) {
    if (op.is<GatherWeightsOp>()) weights += op.bytes;
    if (op.is<ReduceGradientOp>()) gradients += op.bytes;
  }
  const double others = static_cast<double>(layout.parameters) * 2 / 3;
  EXPECT_LE(weights, 2 * others * static_cast<double>(shape.weight_element_bytes) * 1.01);
  EXPECT_NEAR(static_cast<double>(gradients), 4 * others, 4 * others * 0.01);
}

// With whole loads the link carries every weight, and no other rank does. The memory is the same.
TEST_F(MemoryPlanTest, WholeLoadsGatherNothing) {
  JobSpec spec = Spec();
  spec.training.micro_batch = 1;
  spec.engine.devices = 3;
  const ModelLayout layout = BuildModelLayout(Config(6, /*tied=*/false));
  const MemoryPlan shards = Plan(spec, layout);
  spec.engine.loads = WeightLoads::kWhole;
  const MemoryPlan whole = Plan(spec, layout);
  EXPECT_THAT(shards.Table(), HasSubstr("weights: each device loads its shard and gathers"));
  EXPECT_THAT(whole.Table(), HasSubstr("weights: each device loads all of them"));
  EXPECT_EQ(whole.pool_bytes, shards.pool_bytes);
  EXPECT_EQ(whole.device_bytes, shards.device_bytes);
  const auto loaded = [](const PipelineShape& shape) {
    PipelineState state;
    BuildTrainingStep(shape, {8, 8}, state);
    int64_t bytes = 0;
    for (const Op& op : BuildTrainingStep(shape, {8, 8}, state).ops) {
      if (op.is<LoadTileOp>() || op.is<GatherWeightsOp>()) bytes += op.bytes;
      EXPECT_FALSE(shape.whole_loads && op.is<GatherWeightsOp>());
    }
    return bytes;
  };
  EXPECT_EQ(loaded(whole.dimensions.shape), loaded(shards.dimensions.shape));

  // Nothing to choose for one device; impossible for several processes.
  spec.engine.devices = 1;
  EXPECT_FALSE(Plan(spec, layout).dimensions.shape.whole_loads);
  const auto processes = PlanMemory(spec, layout, kernels_, Budget(), {}, {.count = 2});
  EXPECT_THAT(std::string(processes.status().message()),
              HasSubstr("engine.loads: whole needs the model's state in one process"));
}

}  // namespace
}  // namespace megatrain

#include "engine/plan/simulated_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace megatrain {
namespace {

constexpr LaneRates kUnitRates = {.h2d_bytes_per_second = 1,
                                  .d2h_bytes_per_second = 1,
                                  .product_flops_per_second = 1,
                                  .attention_forward_flops_per_second = 1,
                                  .attention_backward_flops_per_second = 1,
                                  .device_bytes_per_second = 1,
                                  .update_bytes_per_second = 1,
                                  .disk_bytes_per_second = 1};

// `flops` of products.
Op MakeOp(const AnyOp& what, Lane lane, int64_t bytes, double flops, Resource read,
          Resource write) {
  Op op(what, lane);
  op.bytes = bytes;
  op.work.product_flops = flops;
  op.reads = {read};
  op.writes = {write};
  return op;
}

TEST(SimulatedExecutorTest, LanesOverlapAsFarAsResourcesAllow) {
  const Resource tile{ResourceKind::kTileWeights, 1};
  const Resource first{ResourceKind::kWeightBuffer, 0}, second{ResourceKind::kWeightBuffer, 1};
  const Resource hidden{ResourceKind::kHidden, 0};
  Schedule schedule;
  schedule.ops = {MakeOp(LoadTileOp{}, Lane::kH2D, 3, 0, tile, first),
                  MakeOp(LayerForwardOp{}, Lane::kCompute, 0, 5, first, hidden),
                  MakeOp(LoadTileOp{}, Lane::kH2D, 4, 0, tile, second),
                  MakeOp(LayerForwardOp{}, Lane::kCompute, 0, 7, second, hidden),
                  MakeOp(LoadTileOp{}, Lane::kH2D, 2, 0, tile, first)};
  SimulatedExecutor executor(kUnitRates);
  const SimulatedExecutor::Run run = executor.Submit(schedule);
  const std::vector<std::pair<double, double>> expected = {
      {0, 3}, {3, 8}, {3, 7}, {8, 15}, {8, 10}};
  ASSERT_EQ(run.spans.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(run.spans[i].start_seconds, expected[i].first) << i;
    EXPECT_EQ(run.spans[i].end_seconds, expected[i].second) << i;
  }
  EXPECT_EQ(run.end_seconds, 15);
  EXPECT_EQ(run.busy_seconds[static_cast<int>(Lane::kH2D)], 9);
  EXPECT_EQ(run.busy_seconds[static_cast<int>(Lane::kCompute)], 12);

  // The next schedule goes on where this one ended.
  Schedule next;
  next.ops = {MakeOp(StoreStashOp{}, Lane::kD2H, 1, 0, hidden, {ResourceKind::kHostStash, 0})};
  EXPECT_EQ(executor.Submit(next).spans[0].start_seconds, 15);
}

TEST(SimulatedExecutorTest, AnOptimizerOnComputesThreadsTakesTurnsWithIt) {
  Schedule schedule;
  schedule.ops = {
      MakeOp(LayerForwardOp{}, Lane::kCompute, 0, 5, {ResourceKind::kWeightBuffer, 0},
             {ResourceKind::kHidden, 0}),
      MakeOp(UpdateTileOp{}, Lane::kUpdate, 3, 0, {ResourceKind::kSlab, 0},
             {ResourceKind::kTileWeights, 0}),
      MakeOp(LayerForwardOp{}, Lane::kCompute, 0, 2, {ResourceKind::kWeightBuffer, 1},
             {ResourceKind::kHidden, 1}),
  };
  EXPECT_EQ(SimulatedExecutor(kUnitRates).Submit(schedule).end_seconds, 7);
  LaneRates shared = kUnitRates;
  shared.update_shares_compute = true;
  const SimulatedExecutor::Run run = SimulatedExecutor(shared).Submit(schedule);
  EXPECT_EQ(run.end_seconds, 10);
  EXPECT_EQ(run.busy_seconds[static_cast<int>(Lane::kUpdate)], 3);
  EXPECT_EQ(run.spans[1].start_seconds, 5);
  EXPECT_EQ(run.spans[2].start_seconds, 8);
}

// An update of 6 s and loads of 2, 2 and 4 s, while the host's memory gives 1.5 of the 2 bytes a
// second that they ask for together: both take 4/3 as long until the update ends.
TEST(SimulatedExecutorTest, CopiesAndAnOptimizerShareTheHostsMemory) {
  Schedule schedule;
  schedule.ops = {
      MakeOp(UpdateTileOp{}, Lane::kUpdate, 6, 0, {ResourceKind::kSlab, 0},
             {ResourceKind::kTileWeights, 0}),
      MakeOp(LoadTileOp{}, Lane::kH2D, 2, 0, {ResourceKind::kTileWeights, 1},
             {ResourceKind::kWeightBuffer, 0}),
      MakeOp(LoadTileOp{}, Lane::kH2D, 2, 0, {ResourceKind::kTileWeights, 2},
             {ResourceKind::kWeightBuffer, 1}),
      MakeOp(LoadTileOp{}, Lane::kH2D, 4, 0, {ResourceKind::kTileWeights, 3},
             {ResourceKind::kWeightBuffer, 2}),
  };
  EXPECT_EQ(SimulatedExecutor(kUnitRates).Submit(schedule).end_seconds, 8);
  LaneRates shared = kUnitRates;
  shared.host_memory_bytes_per_second = 1.5;
  const SimulatedExecutor::Run run = SimulatedExecutor(shared).Submit(schedule);
  EXPECT_DOUBLE_EQ(run.spans[0].end_seconds, 8);
  EXPECT_DOUBLE_EQ(run.spans[1].end_seconds, 2 * 4.0 / 3);
  EXPECT_DOUBLE_EQ(run.spans[2].end_seconds, 4 * 4.0 / 3);
  EXPECT_DOUBLE_EQ(run.spans[3].end_seconds, 10);
  EXPECT_EQ(run.busy_seconds[static_cast<int>(Lane::kUpdate)], 6);
  // Compute moves none of it, and what one lane asks for alone it gets.
  schedule.ops = {MakeOp(LayerForwardOp{}, Lane::kCompute, 0, 5, {ResourceKind::kWeightBuffer, 0},
                         {ResourceKind::kHidden, 0}),
                  MakeOp(UpdateTileOp{}, Lane::kUpdate, 3, 0, {ResourceKind::kSlab, 0},
                         {ResourceKind::kTileWeights, 0})};
  EXPECT_EQ(SimulatedExecutor(shared).Submit(schedule).spans[1].end_seconds, 3);
}

TEST(SimulatedExecutorTest, CopiesToTheHostShareItsMemoryWithTheOptimizer) {
  Schedule schedule;
  schedule.ops = {MakeOp(UpdateTileOp{}, Lane::kUpdate, 6, 0, {ResourceKind::kSlab, 0},
                         {ResourceKind::kTileWeights, 0}),
                  MakeOp(StoreStashOp{}, Lane::kD2H, 4, 0, {ResourceKind::kHidden, 0},
                         {ResourceKind::kHostStash, 0})};
  LaneRates shared = kUnitRates;
  shared.host_memory_bytes_per_second = 1.5;
  const SimulatedExecutor::Run run = SimulatedExecutor(shared).Submit(schedule);
  EXPECT_DOUBLE_EQ(run.spans[1].end_seconds, 4 / 0.75);      // both at three quarters
  EXPECT_DOUBLE_EQ(run.spans[0].end_seconds, 4 / 0.75 + 2);  // then alone
}

TEST(SimulatedExecutorTest, WorkTakesEachPartAtItsRateOrAsLongAsItsLaunches) {
  const LayerWork work = {.product_flops = 6,
                          .attention_forward_flops = 10,
                          .attention_backward_flops = 12,
                          .device_bytes = 35,
                          .launches = 4};
  LaneRates lane_rates = kUnitRates;
  lane_rates.product_flops_per_second = 2;
  lane_rates.attention_forward_flops_per_second = 5;
  lane_rates.attention_backward_flops_per_second = 3;
  lane_rates.device_bytes_per_second = 7;
  EXPECT_EQ(WorkSeconds(work, lane_rates), 3 + 2 + 4 + 5);
  lane_rates.launch_seconds = 3;
  EXPECT_EQ(WorkSeconds(work, lane_rates), 14);
  lane_rates.launch_seconds = 4;
  EXPECT_EQ(WorkSeconds(work, lane_rates), 16);
}

TEST(SimulatedExecutorTest, WeightsAreGatheredAndGradientsReducedAtTheirRates) {
  LaneRates lane_rates = kUnitRates;
  lane_rates.gather_bytes_per_second = 2;
  lane_rates.reduce_bytes_per_second = 5;
  const auto seconds = [&](const AnyOp& what) {
    return OpSeconds(MakeOp(what, Lane::kCollective, 10, 0, {ResourceKind::kWeightBuffer, 0},
                            {ResourceKind::kWeightBuffer, 0}),
                     lane_rates);
  };
  EXPECT_EQ(seconds(GatherWeightsOp{}), 5);
  EXPECT_EQ(seconds(ReduceGradientOp{}), 2);
}

// The design's promise of overlap (ARCHITECTURE.md, "What bounds a step"), on rates where the
// link's busier direction takes 0.8 of compute and the stash is as large as the weights: the regime
// of large batches.
class StepOverBound : public testing::TestWithParam<bool> {};

TEST_P(StepOverBound, IsAtMostOneTenthAboveOne) {
  PipelineShape shape;
  for (int layer = 0; layer < 24; ++layer) shape.stages.push_back({.tile = layer + 1});
  shape.tied = true;
  shape.tile_elements.assign(25, 1000);
  shape.weight_element_bytes = 2;
  shape.clipping = GetParam();
  shape.slab_per_tile = shape.clipping;
  shape.gradient_slabs = shape.clipping ? shape.tiles() : 4;
  shape.stash_on_host = true;
  shape.sweep_micro_batches = 8;
  const std::vector<int64_t> tokens(8, 25);
  shape.hidden_bytes_per_token = 10;
  StageStepWork layer;
  layer.forward.product_flops = shape.work.head_loss.product_flops = 2000;
  layer.backward.product_flops = 2 * 2000;
  shape.work.stages.assign(shape.stages.size(), layer);
  shape.work.head.product_flops = 3 * 2000;
  shape.kept = shape.kept_everything = shape.stage_count() * shape.sweep_micro_batches;

  PipelineState probe;
  double flops = 0, up = 0, down = 0;
  BuildTrainingStep(shape, tokens, probe);
  for (const Op& op : BuildTrainingStep(shape, tokens, probe).ops) {
    flops += op.work.product_flops;
    if (op.lane == Lane::kH2D) up += static_cast<double>(op.bytes);
    if (op.lane == Lane::kD2H) down += static_cast<double>(op.bytes);
  }
  LaneRates lane_rates;
  lane_rates.product_flops_per_second = flops;  // a step's compute takes a second
  lane_rates.attention_forward_flops_per_second = lane_rates.attention_backward_flops_per_second =
      flops;
  lane_rates.h2d_bytes_per_second = lane_rates.d2h_bytes_per_second = std::max(up, down) / 0.8;
  lane_rates.device_bytes_per_second = 50 * lane_rates.h2d_bytes_per_second;
  lane_rates.update_bytes_per_second = 10 * lane_rates.h2d_bytes_per_second;
  lane_rates.disk_bytes_per_second = lane_rates.h2d_bytes_per_second;
  SimulatedExecutor executor(lane_rates);
  PipelineState state;
  double before = 0, seconds = 0, update = 0;
  for (int step = 0; step < 3; ++step) {
    const SimulatedExecutor::Run run = executor.Submit(BuildTrainingStep(shape, tokens, state));
    seconds = run.end_seconds - before;
    before = run.end_seconds;
    update = run.busy_seconds[static_cast<int>(Lane::kUpdate)];
  }
  // Forward is a third of compute; with clipping the updates cannot begin before backward's end.
  const double bound = shape.clipping ? 2.0 / 3 + std::max(1.0 / 3, update) : 1.0;
  EXPECT_GE(seconds, bound);
  EXPECT_LE(seconds, 1.10 * bound);
}

INSTANTIATE_TEST_SUITE_P(Clipping, StepOverBound, testing::Bool());

}  // namespace
}  // namespace megatrain

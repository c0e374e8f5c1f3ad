#include "engine/plan/step_prediction.h"

#include <gtest/gtest.h>

#include "engine/device/reference_kernels.h"
#include "engine/plan/memory_plan.h"

namespace megatrain {
namespace {

ModelDescription Config(int64_t layers = 4, int64_t hidden = 64) {
  UniformShape c;
  c.vocabulary = 1000;
  c.hidden = hidden;
  c.layers = layers;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = hidden / 4;
  c.intermediate = 3 * hidden;
  c.max_positions = 4096;
  return UniformModel(c);
}

JobSpec Spec(int64_t batch = 8, int64_t micro_batch = 2) {
  JobSpec spec;
  spec.data.sequence_length = 128;
  spec.training.global_batch = batch;
  spec.training.micro_batch = micro_batch;
  spec.training.precision = Precision::kFp32;
  spec.engine.recompute = RecomputeMode::kNone;
  return spec;
}

// So fast that it takes no time.
constexpr double kInstant = 1e30;

HardwareRates Instant() {
  HardwareRates rates;
  rates.fp32 = rates.bf16 = {kInstant, kInstant, kInstant, kInstant, kInstant};
  rates.h2d_bytes_per_second = rates.d2h_bytes_per_second = kInstant;
  rates.threads = 4;
  return rates;
}

class StepPredictionTest : public testing::Test {
 protected:
  StepPrediction Predict(const JobSpec& spec, const HardwareRates& rates,
                         StepResources resources = {.threads = 4}) {
    MemoryBudget budget;
    budget.host_bytes = budget.device_bytes = int64_t{1} << 50;
    auto plan = PlanMemory(spec, layout_, kernels_, budget);
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(plan->fits);
    return PredictStep(plan->dimensions, {rates, resources});
  }
  // FLOPs of a step's products, by hand.
  double Products(int64_t tokens) const {
    const ModelDescription& c = layout_.model;
    return 3.0 * static_cast<double>(tokens) *
           (static_cast<double>(c.layer_count()) * LayerFlops() +
            static_cast<double>(2 * c.vocabulary * c.hidden));
  }
  // Of a token's in a layer's forward pass.
  double LayerFlops() const { return 2.0 * static_cast<double>(MatricesBeforeLast() + Last()); }
  int64_t MatricesBeforeLast() const {
    const ModelDescription& c = layout_.model;
    const LayerDescription& layer = c.layers.front();
    return c.hidden * (layer.attention.q_width() + layer.attention.projected_width()) +
           2 * c.hidden * layer.feed_forward.intermediate;
  }
  int64_t Last() const {
    return layout_.model.hidden * layout_.model.layers.front().feed_forward.intermediate;
  }
  ModelLayout layout_ = BuildModelLayout(Config());
  ReferenceKernels kernels_;
};

// One of two devices has three micro-batches, and the other two.
TEST_F(StepPredictionTest, TokensAreThoseOfTheStepHoweverDevicesShareIt) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  rates.collective_bytes_per_second = kInstant;
  JobSpec spec = Spec(/*batch=*/5, /*micro_batch=*/1);
  spec.engine.devices = 2;
  const StepPrediction prediction = Predict(spec, rates);
  EXPECT_NEAR(prediction.tokens_per_second * prediction.step_seconds, 5 * 128, 1e-6);
}

TEST_F(StepPredictionTest, ProductsAloneTakeTheirFlopsOverTheirRate) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  const StepPrediction prediction = Predict(Spec(), rates);
  const double expected = Products(8 * 128) / 1e9;
  EXPECT_NEAR(prediction.step_seconds, expected, 1e-6 * expected);
  EXPECT_NEAR(prediction.lane_busy_seconds.compute, expected, 1e-6 * expected);
  EXPECT_NEAR(prediction.tokens_per_second, 8 * 128 / expected, 1e-3);
  EXPECT_EQ(prediction.bound_by, Lane::kCompute);
  // Recomputed, the layers' forward pass is run once more but for its last product.
  JobSpec spec = Spec();
  spec.engine.recompute = RecomputeMode::kAll;
  const double layers = 2.0 * 8 * 128 * 4 * static_cast<double>(MatricesBeforeLast()) / 1e9;
  EXPECT_NEAR(Predict(spec, rates).step_seconds, expected + layers, 1e-6 * expected);
}

// Causal: a token sees half of its sequence. Two products over pairs of tokens forward, and once
// more where that is recomputed; five backward, at a rate of their own.
TEST_F(StepPredictionTest, AttentionGoesByItsLengthEachWayAtItsRate) {
  const double pair_product = 2.0 * 64 * (8 * 128) * 128 / 2 * 4;  // width, tokens, layers
  HardwareRates rates = Instant();
  rates.fp32.attention_flops_per_second = 1e9;
  EXPECT_NEAR(Predict(Spec(), rates).step_seconds, 2 * pair_product / 1e9, 1e-6);
  JobSpec recomputing = Spec();
  recomputing.engine.recompute = RecomputeMode::kAll;
  EXPECT_NEAR(Predict(recomputing, rates).step_seconds, 4 * pair_product / 1e9, 1e-6);
  rates.fp32.attention_backward_flops_per_second = 5e8;
  EXPECT_NEAR(Predict(Spec(), rates).step_seconds, (2 + 2 * 5) * pair_product / 1e9, 1e-6);
  // As many tokens in sequences twice as long.
  JobSpec longer = Spec(/*batch=*/4, /*micro_batch=*/1);
  longer.data.sequence_length = 256;
  EXPECT_NEAR(Predict(longer, rates).step_seconds, 2 * Predict(Spec(), rates).step_seconds, 1e-6);
}

// With a window of 32 a token of a sequence of 128 sees 28 tokens on average, without one 64.
TEST_F(StepPredictionTest, AWindowShortensAttention) {
  HardwareRates rates = Instant();
  rates.fp32.attention_flops_per_second = rates.fp32.attention_backward_flops_per_second = 1e9;
  const double whole = Predict(Spec(), rates).step_seconds;
  const auto with_window = [&](int64_t window) {
    ModelDescription model = Config();
    for (LayerDescription& layer : model.layers) layer.attention.window = window;
    layout_ = BuildModelLayout(model);
    return Predict(Spec(), rates).step_seconds;
  };
  EXPECT_NEAR(with_window(32), whole * 28 / 64, 1e-6 * whole);
  EXPECT_NEAR(with_window(4096), whole, 1e-6 * whole);
}

// Latents have products of their own, and heads of values another size than those of keys.
TEST_F(StepPredictionTest, LatentsAreExpandedByTwoMoreProducts) {
  ModelDescription model = Config();
  for (LayerDescription& layer : model.layers) {
    layer.attention.kv_heads = 4;
    layer.attention.latent = {
        .key_value_rank = 24, .query_rank = 40, .rotary_dim = 4, .value_dim = 12};
  }
  layout_ = BuildModelLayout(model);
  double parameters = 0;  // of a layer's products
  for (const TensorSpec& tensor : layout_.tiles[1].tensors) {
    if (tensor.decays) parameters += static_cast<double>(tensor.elements);
  }
  const double tokens = 8 * 128, head = 1000 * 64;
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  const double expected = 3 * 2 * tokens * (4 * parameters + head) / 1e9;
  EXPECT_NEAR(Predict(Spec(), rates).step_seconds, expected, 1e-6 * expected);
  // 4 heads of 16 and 12 elements: one product of each forward, 3 and 2 backward.
  rates = Instant();
  rates.fp32.attention_flops_per_second = rates.fp32.attention_backward_flops_per_second = 1e9;
  const double pairs = 2.0 * tokens * 128 / 2 * 4;  // operations for an element, of all layers
  EXPECT_NEAR(Predict(Spec(), rates).step_seconds, pairs * (4 * 64 + 3 * 48) / 1e9, 1e-6);
}

// A head's state is decayed, read, changed and read: 7 operations for each of its elements.
TEST_F(StepPredictionTest, DeltaNetsGoByTheirStates) {
  ModelDescription model = Config();
  for (int i = 0; i < 3; ++i) {
    model.layers[i].attention = AttentionDescription();
    model.layers[i].delta_net = {
        .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 16, .kernel = 4};
  }
  layout_ = BuildModelLayout(model);
  const double pair_product = 2.0 * 64 * (8 * 128) * 128 / 2;  // of the layer with attention
  const double rule = 3.0 * (8 * 128) * 7 * (4 * 16 * 8);
  HardwareRates rates = Instant();
  rates.fp32.attention_flops_per_second = 1e9;
  EXPECT_NEAR(Predict(Spec(), rates).step_seconds, (2 * pair_product + rule) / 1e9, 1e-9);
  rates.fp32.attention_backward_flops_per_second = 1e9;
  EXPECT_NEAR(Predict(Spec(), rates).step_seconds, (7 * pair_product + 4 * rule) / 1e9, 1e-9);
}

TEST_F(StepPredictionTest, PerLayerInputsTakeThreeProducts) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  const auto seconds = [&](int64_t width) {
    ModelDescription model = Config();
    for (LayerDescription& layer : model.layers) {
      layer.per_layer_input = {.width = width, .vocabulary = 1000};
    }
    layout_ = BuildModelLayout(model);
    return Predict(Spec(), rates).step_seconds;
  };
  // From the stream, from the embedding, and back; once forward and twice backward.
  const double more = 9 * 2.0 * (8 * 128) * 4 * 64 * 8 / 1e9;
  EXPECT_NEAR(seconds(24) - seconds(16), more, 1e-6 * more);
}

// Each micro-batch reads and writes the FP32 sums of the gradients, the first only writes them; the
// head does so in every chunk.
TEST_F(StepPredictionTest, SumsOfGradientsAreReadAndWrittenByEveryMicroBatch) {
  HardwareRates rates = Instant();
  rates.fp32.element_bytes_per_second = 1e9;
  const double few = Predict(Spec(8, 8), rates).step_seconds;
  const double many = Predict(Spec(8, 1), rates).step_seconds;
  const double matrices = 4.0 * static_cast<double>(MatricesBeforeLast() + Last());
  // Of 8 micro-batches of 128 tokens each has one chunk of the head, and so has the one of 1024.
  const double head = 1000.0 * 64;
  EXPECT_NEAR(many - few, 7 * 8 * (matrices + head) / 1e9, 1e-9 + 1e-3 * (many - few));
}

TEST_F(StepPredictionTest, ShortKernelsTakeAsLongAsTheirLaunches) {
  HardwareRates rates = Instant();
  rates.launch_seconds = 1e-3;
  const double eight = Predict(Spec(8, 1), rates).step_seconds;
  // A layer has some 10 kernels forward and 20 backward, the head 8.
  EXPECT_GT(eight, 8 * 4 * 25e-3);
  EXPECT_LT(eight, 8 * 4 * 45e-3);
  // Fewer micro-batches have fewer of them.
  EXPECT_NEAR(Predict(Spec(8, 4), rates).step_seconds, eight / 4, 0.1 * eight);
  // Long enough, they hide them.
  rates.fp32.matmul_flops_per_second = 1e7;
  const double hidden = Predict(Spec(8, 1), rates).step_seconds;
  EXPECT_NEAR(hidden, Products(8 * 128) / 1e7, 0.01 * hidden);
}

TEST_F(StepPredictionTest, ThePrecisionsRatesAreTaken) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  rates.bf16.matmul_flops_per_second = 4e9;
  JobSpec spec = Spec();
  spec.training.precision = Precision::kBf16;
  EXPECT_NEAR(Predict(Spec(), rates).step_seconds, 4 * Predict(spec, rates).step_seconds, 1e-6);
}

TEST_F(StepPredictionTest, TheBusiestLaneBinds) {
  const double elements = static_cast<double>(
      layout_.tiles[0].elements + 4 * layout_.tiles[1].elements + layout_.tiles[5].elements);
  HardwareRates rates = Instant();
  rates.fp32.update_bytes_per_second = 1e9;
  StepPrediction prediction = Predict(Spec(), rates);
  EXPECT_EQ(prediction.bound_by, Lane::kUpdate);
  EXPECT_NEAR(prediction.lane_busy_seconds.update, elements * 28 / 1e9, 1e-9);
  EXPECT_GE(prediction.step_seconds, (1 - 1e-9) * prediction.lane_busy_seconds.update);

  rates = Instant();
  rates.d2h_bytes_per_second = 1e9;
  prediction = Predict(Spec(), rates);
  EXPECT_EQ(prediction.bound_by, Lane::kD2H);
  EXPECT_GE(prediction.lane_busy_seconds.d2h, elements * 4 / 1e9);

  // A throttled link: both directions.
  prediction = Predict(Spec(), Instant(), {.threads = 4, .link_bytes_per_second_max = 1e9});
  EXPECT_EQ(prediction.bound_by, Lane::kH2D);
  EXPECT_GT(prediction.lane_busy_seconds.d2h, 0.9 * elements * 4 / 1e9);
}

TEST_F(StepPredictionTest, OnTheHostTheLanesShareItsProcessors) {
  HardwareRates rates = Instant();
  rates.device_is_host = true;
  rates.fp32.matmul_flops_per_second = 1e9;
  rates.fp32.update_bytes_per_second = 1e8;
  const StepPrediction whole = Predict(Spec(), rates);
  EXPECT_NEAR(whole.step_seconds, whole.lane_busy_seconds.compute + whole.lane_busy_seconds.update,
              1e-6 * whole.step_seconds);
  // Half of the threads, half of the speed.
  EXPECT_NEAR(Predict(Spec(), rates, {.threads = 2}).step_seconds, 2 * whole.step_seconds,
              1e-6 * whole.step_seconds);
  // Set apart, the optimizer has a quarter of them, and compute the rest.
  const StepPrediction apart = Predict(Spec(), rates, {.threads = 4, .update_threads = 1});
  EXPECT_NEAR(apart.lane_busy_seconds.update, 4 * whole.lane_busy_seconds.update, 1e-6);
  EXPECT_NEAR(apart.lane_busy_seconds.compute, whole.lane_busy_seconds.compute * 4 / 3, 1e-6);
  // Copies take processors from both.
  rates.h2d_bytes_per_second = rates.d2h_bytes_per_second = 1e7;
  const StepPrediction copying = Predict(Spec(), rates);
  EXPECT_GT(copying.step_seconds, whole.step_seconds);
}

// By hand: what goes through a machine's port for what a rank receives, a part from each other one.
TEST(ExchangePredictionTest, RanksOfAMachineShareItsPort) {
  HardwareRates rates = Instant();
  rates.collective_bytes_per_second = 360e9;
  const auto lane_rates = [&](int machines, int devices) {
    PipelineDimensions d;
    d.shape.ranks = machines * devices;
    d.processes = machines;
    return LaneRatesOf(d, {rates, {.threads = 4}});
  };
  // Without a rate between machines the one between devices holds everywhere.
  EXPECT_DOUBLE_EQ(lane_rates(4, 8).gather_bytes_per_second, 360e9);
  EXPECT_NEAR(lane_rates(4, 8).reduce_bytes_per_second, 360e9, 1);
  rates.network_bytes_per_second = 45e9;
  EXPECT_DOUBLE_EQ(lane_rates(1, 8).gather_bytes_per_second, 360e9);
  EXPECT_NEAR(lane_rates(1, 8).reduce_bytes_per_second, 360e9, 1);
  // NCCL's ring brings 31 of 32 parts into each machine. A reduction brings each of its 8 ranks 3
  // of the 31 that the rank gets.
  EXPECT_DOUBLE_EQ(lane_rates(4, 8).gather_bytes_per_second, 45e9);
  EXPECT_NEAR(lane_rates(4, 8).reduce_bytes_per_second, 45e9 * 31 / (8 * 3), 1);
  // Twelve ranks make three groups of 4 on each of two machines: 3 of 23.
  EXPECT_NEAR(lane_rates(2, 12).reduce_bytes_per_second, 45e9 * 23 / (12 * 3), 1);
  // Odd ones make none: 7 of 13, as each rank sends to each other one.
  EXPECT_NEAR(lane_rates(2, 7).reduce_bytes_per_second, 45e9 * 13 / (7 * 7), 1);
  // Within machines the other 28 of 31 are moved meanwhile.
  rates.collective_bytes_per_second = 10e9;
  EXPECT_NEAR(lane_rates(4, 8).reduce_bytes_per_second, 10e9 * 31 / 28, 1);
  // Gathers by MPI go as reductions do, without sums.
  rates.device_is_host = true;
  rates.fp32.element_bytes_per_second = 30e9;
  rates.collective_bytes_per_second = 360e9;
  const double seconds = 24.0 / 31 / 45e9;
  EXPECT_NEAR(lane_rates(4, 8).gather_bytes_per_second, 1 / seconds, 1);
  EXPECT_NEAR(lane_rates(4, 8).reduce_bytes_per_second, 1 / (seconds + 3 / 30e9), 1);
}

TEST_F(StepPredictionTest, ManySweepsTakeAsLongAsTheyAre) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  JobSpec spec = Spec(/*batch=*/64, /*micro_batch=*/2);
  spec.engine.micro_batches_per_sweep = 2;
  const StepPrediction prediction = Predict(spec, rates);
  const double expected = Products(64 * 128) / 1e9;
  EXPECT_NEAR(prediction.step_seconds, expected, 1e-3 * expected);
}

TEST_F(StepPredictionTest, ALargeModelWithALargeBatchIsAMatterOfMoments) {
  layout_ = BuildModelLayout(Config(/*layers=*/80, /*hidden=*/256));
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  const StepPrediction prediction = Predict(Spec(/*batch=*/512, /*micro_batch=*/1), rates);
  const double expected = Products(512 * 128) / 1e9;
  EXPECT_NEAR(prediction.step_seconds, expected, 1e-3 * expected);
}

TEST(HostMemoryPredictionTest, RanksOfAMachineShareItsMemory) {
  HardwareRates rates = Instant();
  rates.h2d_bytes_per_second = rates.d2h_bytes_per_second = 50e9;
  rates.h2d_beside_d2h_bytes_per_second = 40e9;
  rates.d2h_beside_h2d_bytes_per_second = 30e9;
  rates.host_memory_bytes_per_second = 160e9;
  PipelineDimensions d;
  d.shape.ranks = 8;
  d.processes = 2;
  LaneRates lane_rates = LaneRatesOf(d, {rates, {.threads = 4}});
  EXPECT_DOUBLE_EQ(lane_rates.h2d_bytes_per_second, 40e9);
  EXPECT_DOUBLE_EQ(lane_rates.d2h_bytes_per_second, 30e9);
  EXPECT_DOUBLE_EQ(lane_rates.host_memory_bytes_per_second, 40e9);
  lane_rates = LaneRatesOf(d, {rates, {.threads = 4, .link_bytes_per_second_max = 35e9}});
  EXPECT_DOUBLE_EQ(lane_rates.h2d_bytes_per_second, 35e9);
  EXPECT_DOUBLE_EQ(lane_rates.d2h_bytes_per_second, 30e9);
  rates.device_is_host = true;
  EXPECT_EQ(LaneRatesOf(d, {rates, {.threads = 4}}).host_memory_bytes_per_second, 0);
}

TEST_F(StepPredictionTest, ExpertsTakeTheProductsOfThoseChosen) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  const auto seconds = [&](int chosen) {
    ModelDescription model = Config();
    for (LayerDescription& layer : model.layers) {
      layer.feed_forward.intermediate = 0;
      layer.experts.count = 8;
      layer.experts.chosen = chosen;
      layer.experts.intermediate = 32;
      layer.experts.experts_per_tile = 4;
    }
    layout_ = BuildModelLayout(model);
    return Predict(Spec(), rates).step_seconds;
  };
  // 3 matrices forward; gate and up again, and twice 3, backward: 11 of hidden x intermediate.
  const double more = 2.0 * (8 * 128) * 4 * (4 - 2) * 11 * 64 * 32 / 1e9;
  EXPECT_NEAR(seconds(4) - seconds(2), more, 1e-3 * more);
}

TEST_F(StepPredictionTest, WhatStandsBesideExpertsTakesItsProducts) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  const auto seconds = [&](int64_t shared, int64_t dense) {
    ModelDescription model = Config();
    for (LayerDescription& layer : model.layers) {
      layer.feed_forward.intermediate = dense;
      layer.experts.count = 8;
      layer.experts.chosen = 2;
      layer.experts.intermediate = 32;
      layer.experts.experts_per_tile = 4;
      layer.experts.shared_intermediate = shared;
      if (dense > 0) layer.join = {{"experts_norm", "experts_post_norm"}, "dense_post_norm"};
    }
    layout_ = BuildModelLayout(model);
    return Predict(Spec(), rates).step_seconds;
  };
  const double matrix = 2.0 * (8 * 128) * 4 * 64 * 32 / 1e9;  // of hidden x 32, in all layers
  // The shared unit's matrices, as experts' 11 times.
  EXPECT_NEAR(seconds(32, 0) - seconds(0, 0), 11 * matrix, 1e-3 * matrix);
  // The dense unit's 3 forward, once more, and twice backward.
  EXPECT_NEAR(seconds(0, 64) - seconds(0, 32), 12 * matrix, 1e-3 * matrix);
}

}  // namespace
}  // namespace megatrain

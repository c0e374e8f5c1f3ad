#include "engine/pipeline/step_prediction.h"

#include <gtest/gtest.h>

#include "engine/device/reference_kernels.h"

namespace megatrain {
namespace {

ModelConfig Config(int64_t layers = 4, int64_t hidden = 64) {
  ModelConfig c;
  c.vocabulary = 1000;
  c.hidden = hidden;
  c.layers = layers;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = hidden / 4;
  c.intermediate = 3 * hidden;
  c.max_positions = 4096;
  return c;
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
  rates.fp32 = rates.bf16 = {kInstant, kInstant, kInstant, kInstant};
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
    return PredictStep(*plan, rates, resources);
  }
  // FLOPs of a step's products, by hand.
  double Products(int64_t tokens) const {
    const ModelConfig& c = layout_.config;
    return 3.0 * static_cast<double>(tokens) *
           static_cast<double>(c.layers * 2 * layout_.tiles[1].parameters +
                               2 * c.vocabulary * c.hidden);
  }
  ModelLayout layout_ = BuildModelLayout(Config());
  ReferenceKernels kernels_;
};

TEST_F(StepPredictionTest, ProductsAloneTakeTheirFlopsOverTheirRate) {
  HardwareRates rates = Instant();
  rates.fp32.matmul_flops_per_second = 1e9;
  const StepPrediction prediction = Predict(Spec(), rates);
  const double expected = Products(8 * 128) / 1e9;
  EXPECT_NEAR(prediction.step_seconds, expected, 1e-6 * expected);
  EXPECT_NEAR(prediction.lane_busy_seconds.compute, expected, 1e-6 * expected);
  EXPECT_NEAR(prediction.tokens_per_second, 8 * 128 / expected, 1e-3);
  EXPECT_EQ(prediction.bound_by, Lane::kCompute);
  // Recomputed, the layers' forward pass is run once more.
  JobSpec spec = Spec();
  spec.engine.recompute = RecomputeMode::kAll;
  const double layers = 2.0 * 8 * 128 * 4 * static_cast<double>(layout_.tiles[1].parameters) / 1e9;
  EXPECT_NEAR(Predict(spec, rates).step_seconds, expected + layers, 1e-6 * expected);
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
  EXPECT_GE(prediction.step_seconds, prediction.lane_busy_seconds.update);

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

}  // namespace
}  // namespace megatrain

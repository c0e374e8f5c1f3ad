// The plan of the shortest predicted step: over random models, machines and budgets, and for the
// 7B model on the machines that it is meant for.
#include "engine/plan/plan_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/plan/device_fit.h"
#include "tests/engine/plan/seven_billion.h"

namespace megatrain {
namespace {

void ExpectSamePlan(const MemoryPlan& plan, const MemoryPlan& expected) {
  EXPECT_EQ(plan.Table(), expected.Table());
  const PipelineShape &a = plan.dimensions.shape, &b = expected.dimensions.shape;
  EXPECT_EQ(a.sweep_micro_batches, b.sweep_micro_batches);
  EXPECT_EQ(a.stash_on_host, b.stash_on_host);
  EXPECT_EQ(a.weight_buffers, b.weight_buffers);
  EXPECT_EQ(a.gradient_slabs, b.gradient_slabs);
  EXPECT_EQ(a.device_update_parts, b.device_update_parts);
  EXPECT_EQ(a.device_parts(1), b.device_parts(1));
  EXPECT_EQ(a.kept_everything, b.kept_everything);
  EXPECT_EQ(a.kept, b.kept);
}

class RandomPlan : public testing::TestWithParam<int> {
 protected:
  int64_t Whole(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Coin() { return Whole(0, 1) == 1; }
  // As likely between 1 and 10 as between 10 and 100.
  double Rate(double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random_));
  }

  ModelDescription Model() {
    UniformShape shape;
    shape.vocabulary = Whole(100, 20'000);
    shape.head_dim = 32;
    shape.kv_heads = Whole(1, 4);
    shape.heads = shape.kv_heads * Whole(1, 4);
    shape.hidden = 64 * Whole(1, 16);
    shape.intermediate = 64 * Whole(1, 40);
    shape.layers = Whole(1, 12);
    shape.max_positions = 4096;
    ModelDescription model = UniformModel(shape);
    model.tied_embeddings = Coin();
    if (Coin()) {
      for (LayerDescription& layer : model.layers) layer.attention.qk_norm = QkNorm::kHead;
    }
    return model;
  }

  JobSpec Job() {
    JobSpec spec;
    spec.data.sequence_length = 64 * Whole(1, 32);
    spec.training.micro_batch = Whole(1, 4);
    spec.training.global_batch = spec.training.micro_batch * Whole(1, 24);
    spec.training.precision = Coin() ? Precision::kBf16 : Precision::kFp32;
    spec.training.gradient_dtype = Coin() ? Precision::kBf16 : Precision::kFp32;
    spec.optimizer.max_gradient_norm = Coin() ? 1.0 : 0.0;
    if (Whole(0, 3) == 0) spec.engine.stash = Coin() ? StashPlace::kHost : StashPlace::kDevice;
    if (Whole(0, 3) == 0) spec.engine.micro_batches_per_sweep = Whole(1, 50);
    if (Whole(0, 3) == 0) spec.engine.recompute = RecomputeMode::kAll;
    spec.engine.weight_buffers = Coin() ? 0 : Whole(2, 3);
    return spec;
  }

  MachineSpeed Machine() {
    MachineSpeed machine;
    HardwareRates& rates = machine.rates;
    rates.bf16.matmul_flops_per_second = Rate(1e12, 1e15);
    rates.bf16.attention_flops_per_second = Rate(1e12, 1e15);
    rates.bf16.attention_backward_flops_per_second = Rate(1e12, 1e15);
    rates.bf16.element_bytes_per_second = Rate(1e11, 1e13);
    rates.bf16.update_bytes_per_second = Rate(1e10, 1e12);
    rates.fp32 = rates.bf16;
    rates.h2d_bytes_per_second = Rate(1e9, 1e12);
    rates.d2h_bytes_per_second = Rate(1e9, 1e12);
    rates.launch_seconds = Coin() ? 0 : Rate(1e-7, 1e-5);
    rates.threads = machine.resources.threads = 16;
    return machine;
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
};

TEST_P(RandomPlan, IsNoLongerThanTheRulesAndFits) {
  const ModelLayout layout = BuildModelLayout(Model());
  const JobSpec spec = Job();
  const MachineSpeed machine = Machine();
  // Between the least that the job can do with and all that it can use.
  const int64_t most = Plan(spec, layout, Gpu(int64_t{1} << 50)).device_bytes;
  const int64_t least = Plan(spec, layout, Gpu(1)).device_bytes;
  const MemoryBudget budget = Gpu(Whole(least, std::max(least, most)));

  const MemoryPlan rule = Plan(spec, layout, budget);
  ASSERT_TRUE(rule.fits) << rule.Table();
  const MemoryPlan chosen = Plan(spec, layout, budget, machine);
  ASSERT_TRUE(chosen.fits) << chosen.Table();
  EXPECT_LE(chosen.device_bytes, budget.device_bytes);
  ASSERT_TRUE(chosen.predicted.has_value());
  const double seconds = PredictStep(chosen.dimensions, machine).step_seconds;
  EXPECT_EQ(seconds, chosen.predicted->step_seconds);
  EXPECT_LE(seconds, PredictStep(rule.dimensions, machine).step_seconds);
  EXPECT_EQ(chosen.chosen_by_time, chosen.by_rule.has_value());
  if (chosen.by_rule.has_value()) {
    EXPECT_GT(chosen.by_rule->predicted.step_seconds, seconds);
  }

  // What the job says is kept to.
  const PipelineShape& shape = chosen.dimensions.shape;
  if (spec.engine.stash != StashPlace::kAuto) {
    EXPECT_EQ(shape.stash_on_host, spec.engine.stash == StashPlace::kHost);
  }
  if (spec.engine.micro_batches_per_sweep > 0) {
    EXPECT_EQ(shape.sweep_micro_batches, std::min<int64_t>(spec.engine.micro_batches_per_sweep,
                                                           chosen.dimensions.micro_batches));
  }
  if (spec.engine.recompute == RecomputeMode::kAll) {
    EXPECT_EQ(shape.kept, 0);
  }
  if (spec.engine.weight_buffers > 0) {
    EXPECT_EQ(shape.weight_buffers, spec.engine.weight_buffers);
  }

  // The same again.
  const MemoryPlan again = Plan(spec, layout, budget, machine);
  ExpectSamePlan(again, chosen);
  EXPECT_EQ(again.predicted->step_seconds, seconds);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPlan, testing::Range(0, 24));

struct Expected {
  const char* profile;
  const char* memory;
  const char* dram;
  double low, high;            // tokens/s
  double host_low, host_high;  // the same with all updates on the host
};

class SevenBillionPlan : public testing::TestWithParam<Expected> {};

TEST_P(SevenBillionPlan, TrainsAsFast) {
  const Expected& e = GetParam();
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  const Machine machine = Profile(e.profile, {e.memory, e.dram});
  JobSpec spec = SevenBillionJob();
  const MemoryPlan plan = Plan(spec, layout, machine.budget, machine.speed);
  ASSERT_TRUE(plan.fits) << plan.Table();
  EXPECT_GE(plan.predicted->tokens_per_second, e.low);
  EXPECT_LE(plan.predicted->tokens_per_second, e.high);
  ASSERT_TRUE(plan.runner_up.has_value());
  EXPECT_GE(plan.runner_up->predicted.step_seconds, plan.predicted->step_seconds);

  spec.engine.update_device = UpdateDevice::kHost;
  const MemoryPlan on_host = Plan(spec, layout, machine.budget, machine.speed);
  EXPECT_EQ(on_host.dimensions.shape.device_update_parts, 0);
  EXPECT_GE(on_host.predicted->tokens_per_second, e.host_low);
  EXPECT_LE(on_host.predicted->tokens_per_second, e.host_high);
}

INSTANTIATE_TEST_SUITE_P(
    Machines, SevenBillionPlan,
    testing::Values(Expected{"h200", "memory=4.0", "dram=80", 11'800, 13'000, 10'000, 11'500},
                    Expected{"h200", "memory=4.0", "dram=150", 12'800, 13'600, 12'000, 13'200},
                    Expected{"h100", "memory=2.75", "dram=80", 11'000, 12'000, 9'300, 10'700},
                    Expected{"h100", "memory=2.75", "dram=150", 12'000, 12'600, 11'000, 12'100}));

// While the link idles, several sweeps keep what one would recompute.
TEST(PlanChoiceTest, SeveralSweepsTakeThePlaceOfRecomputation) {
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  const Machine machine = Profile("h100", {"memory=2.75", "dram=300"});
  const MemoryPlan plan = Plan(SevenBillionJob(), layout, machine.budget, machine.speed);
  EXPECT_LT(plan.dimensions.shape.sweep_micro_batches, 8);
  ASSERT_TRUE(plan.by_rule.has_value());
  EXPECT_EQ(plan.by_rule->shape.sweep_micro_batches, 8);
  EXPECT_LT(plan.predicted->lane_busy_seconds.compute,
            0.97 * plan.by_rule->predicted.lane_busy_seconds.compute);
  // A slow link has no room for that.
  const Machine slow = Profile("h100", {"memory=2.75", "dram=300", "link=8"});
  const MemoryPlan one = Plan(SevenBillionJob(), layout, slow.budget, slow.speed);
  EXPECT_EQ(one.dimensions.shape.sweep_micro_batches, 8);
}

// Sums over sweeps take FP32 slabs, twice the BF16 gradients: a host without room for them keeps to
// one sweep.
TEST(PlanChoiceTest, HostMemoryIsALimitOfTheChoiceToo) {
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  const Machine machine = Profile("h100", {"memory=2.75", "dram=300"});
  JobSpec spec = SevenBillionJob();
  spec.engine.stash = StashPlace::kDevice;
  const MemoryPlan rule = Plan(spec, layout, machine.budget);
  const MemoryBudget tight = Gpu(machine.budget.device_bytes, rule.host_bytes + (int64_t{1} << 30));
  const MemoryPlan plan = Plan(spec, layout, tight, machine.speed);
  EXPECT_TRUE(plan.fits) << plan.Table();
  EXPECT_EQ(plan.dimensions.shape.sweep_micro_batches, 8);
  EXPECT_LT(Plan(spec, layout, machine.budget, machine.speed).dimensions.shape.sweep_micro_batches,
            8);
  EXPECT_FALSE(plan.chosen_by_time);
}

TEST(PlanChoiceTest, WhereTheRulesPlanDoesNotFitTimeChooses) {
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  const Machine machine = Profile("h100", {"memory=2.75"});
  const MemoryPlan rule = Plan(SevenBillionJob(), layout, machine.budget);
  const int sweep = rule.dimensions.shape.sweep_micro_batches;
  const MemoryPlan chosen =
      ChooseByTime(SevenBillionJob(), CudaKernelSizes(), machine.speed, rule.device_limit,
                   rule.dimensions, [&](const PipelineDimensions& dimensions) {
                     MemoryPlan plan;
                     plan.dimensions = dimensions;
                     plan.fits = dimensions.shape.sweep_micro_batches != sweep;
                     return plan;
                   });
  ASSERT_TRUE(chosen.fits);
  EXPECT_TRUE(chosen.chosen_by_time);
  EXPECT_FALSE(chosen.by_rule.has_value());
}

// A host of slow memory has most of AdamW on the device, one of fast memory none that would not
// pay.
TEST(PlanChoiceTest, TheOptimizerGoesWhereItIsFaster) {
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  const auto parts = [&](const char* dram) {
    const Machine machine = Profile("h200", {"memory=4.0", dram});
    return Plan(SevenBillionJob(), layout, machine.budget, machine.speed)
        .dimensions.shape.device_update_parts;
  };
  EXPECT_GT(parts("dram=20"), kUpdateParts / 2);
  EXPECT_GT(parts("dram=80"), kUpdateParts / 4);
  EXPECT_LT(parts("dram=1000"), kUpdateParts / 4);
}

// Kept is what saves the most recomputation. Where the norms are what is dear, layers are kept
// whole before others are kept partly; else, and where no rates are known, as the rule has it.
TEST(PlanChoiceTest, TheOrderOfKeptActivationsFollowsTheSecondsThatTheySave) {
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  const JobSpec spec = SevenBillionJob();
  const Machine machine = Profile("h100", {"memory=2.75"});
  const CudaKernelSizes sizes;
  const MemoryPlan rule = Plan(spec, layout, machine.budget);
  const LaneRates lane_rates = LaneRatesOf(rule.dimensions, machine.speed);
  const auto kept = [&](double dear_products, const LaneRates* rates) {
    PipelineDimensions d = rule.dimensions;
    for (StageStepWork& layer : d.shape.work.stages) {
      layer.recompute = {};
      layer.recompute[static_cast<size_t>(KeepLevel::kCheapRecomputed)].device_bytes = 1e9;
      layer.recompute[static_cast<size_t>(KeepLevel::kNothing)].device_bytes = 1e9 + dear_products;
    }
    EXPECT_TRUE(FitDevice(spec, sizes, rule.device_limit, d.shape.sweep_micro_batches,
                          d.shape.stash_on_host, d, rates));
    return std::pair(d.shape.kept_everything, d.shape.kept);
  };
  const std::pair by_rule(rule.dimensions.shape.kept_everything, rule.dimensions.shape.kept);
  EXPECT_EQ(kept(1e11, &lane_rates), by_rule);
  EXPECT_EQ(kept(1e6, nullptr), by_rule);
  const auto whole = kept(1e6, &lane_rates);
  EXPECT_GT(whole.first, by_rule.first);
  EXPECT_LT(whole.second, by_rule.second);
}

// The choice of loads follows the rate between devices, unless the job makes it or the rate is not
// known.
TEST(PlanChoiceTest, DevicesWithoutAFastPathLoadWholeTiles) {
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  JobSpec spec = SevenBillionJob(/*micro_batch=*/1);
  spec.engine.devices = 4;
  const Machine fast = Profile("h100", {}), slow = Profile("h100", {"collective=8"});
  const auto plan = [&](const Machine& machine) {
    return Plan(spec, layout, machine.budget, machine.speed);
  };
  EXPECT_FALSE(plan(fast).dimensions.shape.whole_loads);
  const MemoryPlan whole = plan(slow);
  EXPECT_TRUE(whole.dimensions.shape.whole_loads);
  ASSERT_TRUE(whole.by_rule.has_value());
  EXPECT_FALSE(whole.by_rule->shape.whole_loads);
  EXPECT_LT(whole.predicted->lane_busy_seconds.collective,
            whole.by_rule->predicted.lane_busy_seconds.collective);
  EXPECT_GT(whole.predicted->lane_busy_seconds.h2d, whole.by_rule->predicted.lane_busy_seconds.h2d);

  Machine unknown = slow;
  unknown.speed.rates.collective_bytes_per_second = 0;
  EXPECT_FALSE(plan(unknown).dimensions.shape.whole_loads);
  const CudaKernelSizes sizes;
  JobSpec one = spec;
  one.engine.devices = 1;
  EXPECT_FALSE(PlanMemory(one, layout, sizes, slow.budget, slow.speed, {.count = 4})
                   ->dimensions.shape.whole_loads);
  spec.engine.loads = WeightLoads::kShards;
  EXPECT_FALSE(plan(slow).dimensions.shape.whole_loads);
  spec.engine.loads = WeightLoads::kWhole;
  EXPECT_TRUE(plan(fast).dimensions.shape.whole_loads);
}

// On the cpu device lanes share the processors: what the rule chooses stays unless something else
// is clearly shorter.
TEST(PlanChoiceTest, OnTheCpuTheRuleStays) {
  ModelDescription c = SevenBillion();
  c.layers.resize(4);
  c.hidden = 512;
  for (LayerDescription& layer : c.layers) {
    layer.attention.heads = layer.attention.kv_heads = 4;
    layer.feed_forward.intermediate = 2048;
  }
  const ModelLayout layout = BuildModelLayout(c);
  MachineSpeed machine;
  machine.rates.fp32 = {2e11, 1e11, 1e11, 1e10, 1e10};
  machine.rates.bf16 = machine.rates.fp32;
  machine.rates.h2d_bytes_per_second = machine.rates.d2h_bytes_per_second = 1e10;
  machine.rates.threads = machine.resources.threads = 4;
  machine.rates.device_is_host = true;
  JobSpec spec = SevenBillionJob();
  spec.data.sequence_length = 512;
  MemoryBudget budget;
  budget.host_bytes = int64_t{32} << 30;
  const MemoryPlan rule = Plan(spec, layout, budget);
  const MemoryPlan chosen = Plan(spec, layout, budget, machine);
  ExpectSamePlan(rule, chosen);
  EXPECT_EQ(chosen.dimensions.shape.device_update_parts, 0);
}

}  // namespace
}  // namespace megatrain

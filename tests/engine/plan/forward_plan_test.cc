// Plans of generation and evaluation, which have forward passes alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/model/tile.h"
#include "engine/plan/memory_plan.h"
#include "tests/engine/plan/memory_plan_fixture.h"

namespace megatrain {
namespace {

using testing::HasSubstr;

class ForwardPlanTest : public MemoryPlanTest {};

GenerationNeed Need(int64_t prompts) {
  GenerationNeed need;
  for (int64_t i = 0; i < prompts; ++i) need.prompt_tokens.push_back(10 + 7 * i);
  need.answer_tokens = 20;
  return need;
}

TEST_F(ForwardPlanTest, GenerationTakesTheLargestWaveThatFits) {
  const ModelLayout layout = BuildModelLayout(Config(4));
  const GenerationNeed need = Need(9);
  MemoryPlan all = PlanGeneration({}, layout, DType::kBF16, need, kernels_, Budget());
  EXPECT_TRUE(all.fits);
  EXPECT_EQ(all.dimensions.micro_batches, 9);
  EXPECT_EQ(all.dimensions.cache_rows, 9 * 10 + 7 * 36 + 9 * 20);
  EXPECT_EQ(all.dimensions.sequence_length, 10 + 7 * 8 + 20);
  EXPECT_EQ(all.dimensions.micro_batch_tokens, 72) << "66 in steps of 24";
  EXPECT_EQ(all.dimensions.shape.weight_buffers, 2) << "the host's memory has the weights already";
  const auto bytes_of = [](const MemoryPlan& plan, const std::string& name) {
    for (const auto& item : plan.device) {
      if (item.name == name) return item.bytes;
    }
    return int64_t{0};
  };
  // Keys and values of 2 heads of 16 elements of 2 bytes, in 4 layers.
  EXPECT_EQ(bytes_of(all, "key-value cache"), all.dimensions.cache_rows * 4 * 2 * 2 * 16 * 2);
  // Less memory gives smaller waves, and what is left of it holds weights.
  JobSpec::Engine engine;
  int64_t before = 9;
  for (engine.device_memory = all.device_bytes; before > 1; engine.device_memory -= 8192) {
    const MemoryPlan plan = PlanGeneration(engine, layout, DType::kBF16, need, kernels_, Budget());
    ASSERT_TRUE(plan.fits) << plan.Table();
    EXPECT_LE(plan.device_bytes, engine.device_memory);
    EXPECT_LE(plan.dimensions.micro_batches, before);
    before = plan.dimensions.micro_batches;
  }
  engine.device_memory = 2 * all.device_bytes;
  const MemoryPlan resident =
      PlanGeneration(engine, layout, DType::kBF16, need, kernels_, Budget());
  EXPECT_EQ(resident.dimensions.shape.weight_buffers, layout.tile_count());
  engine.device_memory = 1000;
  const MemoryPlan none = PlanGeneration(engine, layout, DType::kBF16, need, kernels_, Budget());
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(none.dimensions.micro_batches, 1);
  EXPECT_THAT(none.misfit, HasSubstr("device memory: needs"));
}

// They are numbered in 32 bits, however much memory there is.
TEST_F(ForwardPlanTest, AWaveHasNoMoreRowsThanHaveNumbers) {
  const ModelLayout layout = BuildModelLayout(Config(4));
  GenerationNeed need;
  need.answer_tokens = 20;
  for (const auto& [tokens, prompts] :
       {std::pair(int64_t{1'000'000'000}, 2), std::pair(int64_t{1'100'000'000}, 1)}) {
    need.prompt_tokens = {tokens, tokens};
    const MemoryPlan plan =
        PlanGeneration({}, layout, DType::kBF16, need, kernels_, Budget(kUnlimitedBytes));
    EXPECT_TRUE(plan.fits) << plan.misfit;
    EXPECT_EQ(plan.dimensions.micro_batches, prompts);
  }
}

TEST_F(ForwardPlanTest, LimitsAreTheJobsAndTheMachines) {
  const ModelLayout layout = BuildModelLayout(Config(4));
  const auto plan = [&](const JobSpec::Engine& engine, const MemoryBudget& budget) {
    return PlanGeneration(engine, layout, DType::kBF16, Need(1), kernels_, budget);
  };
  JobSpec::Engine engine;
  EXPECT_EQ(plan(engine, Budget()).host_limit, Budget().host_bytes);
  EXPECT_EQ(plan(engine, Budget()).device_limit, kUnlimitedBytes) << "the host's memory limits it";
  engine.host_memory = 2 * Budget().host_bytes;
  EXPECT_EQ(plan(engine, Budget()).host_limit, Budget().host_bytes);
  engine.host_memory = 1 << 20;
  const MemoryPlan tight = plan(engine, Budget());
  EXPECT_EQ(tight.host_limit, 1 << 20);
  EXPECT_FALSE(tight.fits);
  EXPECT_THAT(tight.misfit, HasSubstr("host memory: needs"));

  engine = {};
  MemoryBudget gpu = Budget();
  gpu.SetDevice(int64_t{1} << 30);
  EXPECT_EQ(plan(engine, gpu).device_limit, int64_t{1} << 30);
  engine.device_memory = int64_t{2} << 30;
  EXPECT_EQ(plan(engine, gpu).device_limit, int64_t{1} << 30);
  engine.device_memory = 1 << 20;
  EXPECT_EQ(plan(engine, gpu).device_limit, 1 << 20);
  gpu.SetDevice(0);
  EXPECT_EQ(plan({}, gpu).device_limit, 0) << "a GPU without free memory";
}

TEST_F(ForwardPlanTest, SamplePromptsTakeTheCacheOfOneSequence) {
  const ModelLayout layout = BuildModelLayout(Config(4));
  JobSpec spec = Spec();
  spec.engine.recompute = RecomputeMode::kAll;
  const MemoryPlan plain = Plan(spec, layout);
  spec.training.sample_prompts = {{"a", ""}, {"b", ""}};
  const MemoryPlan sampled = Plan(spec, layout);
  EXPECT_EQ(sampled.dimensions.cache_rows, 128);
  // Beside the cache, the numbers of a row and of a state for each token of the batches in both
  // slots.
  EXPECT_EQ(sampled.arena_bytes - plain.arena_bytes,
            128 * 4 * 2 * 2 * 16 * 2 + 2 * (2 * 4 * 8 * 128));
}

TEST_F(ForwardPlanTest, SamplePromptsOfADeltaNetTakeAStateEach) {
  ModelDescription model = Config(4);
  model.layers[0].attention = AttentionDescription();
  model.layers[0].delta_net = {
      .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 16, .kernel = 4};
  const ModelLayout layout = BuildModelLayout(model);
  JobSpec spec = Spec();
  int64_t before = 0;
  for (const size_t prompts : {1, 2}) {
    spec.training.sample_prompts.resize(prompts, {"a", ""});
    const PipelineDimensions d = Plan(spec, layout).dimensions;
    EXPECT_EQ(d.cache_sequences, static_cast<int64_t>(prompts));
    EXPECT_GT(d.cache_layer_bytes(0), before);
    before = d.cache_layer_bytes(0);
  }
  spec.training.sample_prompts.resize(9, {"a", ""});
  const PipelineDimensions d = Plan(spec, layout).dimensions;
  EXPECT_EQ(d.micro_batches, 4);
  EXPECT_EQ(d.cache_sequences, 4) << "each is a micro-batch";
}

TEST_F(ForwardPlanTest, AnEvaluationTakesWeightsAndBatchesAlone) {
  const ModelLayout layout = BuildModelLayout(Config(4));
  const absl::StatusOr<MemoryPlan> plan = PlanEvaluation(Spec(), layout, kernels_, Budget());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->fits);
  EXPECT_EQ(plan->dimensions.micro_batches, 4);
  EXPECT_EQ(plan->dimensions.head_chunk_tokens, Plan(Spec(), layout).dimensions.head_chunk_tokens);
  EXPECT_LT(plan->pool_bytes, Plan(Spec(), layout).pool_bytes / 4);
  JobSpec spec = Spec();
  for (const auto& [precision, dtype] :
       {std::pair(Precision::kBf16, DType::kBF16), std::pair(Precision::kFp32, DType::kF32)}) {
    spec.training.precision = precision;
    EXPECT_TRUE(PlanEvaluation(spec, layout, kernels_, Budget())->dimensions.dtype == dtype);
  }
  spec.data.sequence_length = 513;
  EXPECT_THAT(std::string(PlanEvaluation(spec, layout, kernels_, Budget()).status().message()),
              HasSubstr("512 positions"));
}

}  // namespace
}  // namespace megatrain

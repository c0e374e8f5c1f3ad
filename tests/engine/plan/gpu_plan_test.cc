// Plans for a device with memory of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/model/head/language_head.h"
#include "engine/plan/memory_plan.h"
#include "tests/engine/plan/memory_plan_fixture.h"

namespace megatrain {
namespace {

using testing::HasSubstr;
using testing::Not;

class GpuPlanTest : public MemoryPlanTest {
 protected:
  MemoryPlan PlanFor(const JobSpec& spec, int64_t device_bytes) {
    MemoryBudget budget = Budget();
    budget.SetDevice(device_bytes);
    auto plan = PlanMemory(spec, layout_, sizes_, budget);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }
  const ModelLayout layout_ = BuildModelLayout(Config(3));
  const CudaKernelSizes sizes_;
};

TEST_F(GpuPlanTest, ItsMemoryIsNotTheHosts) {
  const MemoryPlan plan = PlanFor(Spec(), int64_t{1} << 30);
  EXPECT_TRUE(plan.fits) << plan.Table();
  EXPECT_EQ(plan.host_bytes, plan.pool_bytes + plan.process_bytes);
  EXPECT_EQ(plan.device_bytes, plan.arena_bytes + sizes_.StreamWorkspaceBytes());
  EXPECT_EQ(plan.device_limit, int64_t{1} << 30);
  int64_t sum = 0;
  for (const MemoryPlan::Item& item : plan.device) sum += item.bytes;
  EXPECT_EQ(sum, plan.device_bytes) << "every byte has a name";
  EXPECT_THAT(plan.Table(), HasSubstr("stream workspace"));
  EXPECT_THAT(plan.Table(), HasSubstr("backward workspace"));
}

TEST_F(GpuPlanTest, WhatIsFreeIsKeptToAndNoMoreIsAskedFor) {
  const MemoryPlan rich = PlanFor(Spec(), int64_t{8} << 30);
  JobSpec spec = Spec();
  spec.engine.device_memory = int64_t{8} << 30;
  // The limit of a job does not make a card larger.
  const MemoryPlan tight = PlanFor(spec, rich.device_bytes - 1);
  EXPECT_TRUE(tight.fits) << tight.Table();
  EXPECT_LT(tight.device_bytes, rich.device_bytes);
  spec.engine.device_memory = sizes_.StreamWorkspaceBytes();
  const MemoryPlan misfit = PlanFor(spec, int64_t{8} << 30);
  EXPECT_FALSE(misfit.fits);
  EXPECT_THAT(misfit.misfit, HasSubstr("device memory: needs"));
  EXPECT_FALSE(PlanFor(Spec(), 0).fits) << "nothing is free: no rule of the cpu device's applies";
}

TEST_F(GpuPlanTest, SeveralLeaveWhatNcclTakesFree) {
  constexpr int64_t kFree = int64_t{8} << 30;
  JobSpec spec = Spec();
  const MemoryPlan alone = PlanFor(spec, kFree);
  EXPECT_EQ(alone.budget.device_reserve_bytes, 0);
  EXPECT_EQ(alone.dimensions.exchange_bytes, 0);
  EXPECT_THAT(alone.Table(), Not(HasSubstr("left free")));
  spec.engine.devices = 2;
  const MemoryPlan plan = PlanFor(spec, kFree);
  EXPECT_TRUE(plan.fits) << plan.Table();
  const int64_t reserve = plan.budget.device_reserve_bytes;
  EXPECT_GT(reserve, 0);
  EXPECT_EQ(plan.device_limit, kFree - reserve);
  EXPECT_GT(plan.dimensions.exchange_bytes, 0);
  EXPECT_EQ(plan.device_bytes,
            plan.arena_bytes + sizes_.StreamWorkspaceBytes() + plan.dimensions.exchange_bytes);
  EXPECT_THAT(plan.Table(), HasSubstr("left free for what is loaded later"));
  EXPECT_THAT(plan.Table(), HasSubstr("exchange with other GPUs"));
}

ModelDescription Qwen25SevenBillion(bool tied = false) {
  UniformShape config;
  config.vocabulary = 152064;
  config.hidden = 3584;
  config.layers = 28;
  config.heads = 28;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.intermediate = 18944;
  config.max_positions = 32768;
  ModelDescription model = UniformModel(config);
  for (LayerDescription& layer : model.layers) layer.attention.qkv_bias = true;
  model.tied_embeddings = tied;
  return model;
}

// Beside what grows with the batch the device holds two tiles, two of gradients (three where the
// embedding is the head's), and a chunk of the head.
TEST_F(GpuPlanTest, SevenBillionParametersTakeTwoTilesOfTheDevice) {
  for (const bool tied : {false, true}) {
    const ModelDescription config = Qwen25SevenBillion(tied);
    const ModelLayout layout = BuildModelLayout(config);
    JobSpec spec;
    spec.data.sequence_length = 4096;
    spec.training.global_batch = 16;
    spec.training.micro_batch = 2;
    spec.engine.recompute = RecomputeMode::kAll;
    MemoryBudget budget = Budget(int64_t{128} << 30);
    budget.SetDevice(int64_t{138} << 30);
    const auto plan = PlanMemory(spec, layout, sizes_, budget);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(plan->fits) << plan->Table();
    std::map<std::string, int64_t> bytes;
    for (const MemoryPlan::Item& item : plan->device) bytes[item.name] += item.bytes;
    const int64_t tile = layout.tile_elements_max;
    constexpr int64_t kPadding = int64_t{1} << 20;
    EXPECT_LE(bytes["weight buffers"], 2 * tile * 2 + kPadding);
    EXPECT_LE(bytes["gradient accumulators (FP32)"], (tied ? 3 : 2) * tile * 4 + kPadding);
    EXPECT_EQ(bytes["kept activations"], 0);
    const int64_t chunk = plan->dimensions.head_chunk_tokens;
    EXPECT_EQ(chunk, 2048);
    EXPECT_LE(bytes["chunk of a layer or the head"],
              chunk * (config.vocabulary * 4 + config.hidden * 2 + 4) + kPadding)
        << "the larger of both";
    // The batch's: for each micro-batch, and for the one under way.
    for (const char* name :
         {"stash", "hidden gradients", "activations of one layer and micro-batch", "batches",
          "losses", "sums", "rotary tables", "backward workspace", "stream workspace",
          "weight buffers", "gradient accumulators (FP32)", "chunk of a layer or the head"}) {
      EXPECT_GT(bytes[name], 0) << name;
      bytes.erase(name);
    }
    bytes.erase("kept activations");
    // Of 2 Mi elements each, and their gradients.
    EXPECT_LE(bytes["optimizer state of pieces"], 2 * (int64_t{2} << 20) * (12 + 4) + kPadding);
    bytes.erase("optimizer state of pieces");
    EXPECT_TRUE(bytes.empty()) << bytes.begin()->first << "\n" << plan->Table();
  }
}

// Of a layer, only what attention reads and writes grows with the sequence: 7B in BF16 trains
// sequences of half a million tokens in 74 GiB and of a million in an H200's 139.
TEST_F(GpuPlanTest, LongSequencesTakeNoMoreThanAttentionNeeds) {
  for (const auto& [sequence, gibibytes] :
       {std::pair<int64_t, int64_t>(524'288, 74), std::pair<int64_t, int64_t>(1'048'576, 139)}) {
    SCOPED_TRACE(sequence);
    ModelDescription config = Qwen25SevenBillion();
    config.max_positions = sequence;
    const ModelLayout layout = BuildModelLayout(config);
    JobSpec spec;
    spec.data.sequence_length = sequence;
    spec.training.global_batch = spec.training.micro_batch = 1;
    spec.training.gradient_dtype = Precision::kBf16;
    MemoryBudget budget = Budget(int64_t{1} << 40);
    budget.SetDevice(gibibytes << 30);
    const auto plan = PlanMemory(spec, layout, sizes_, budget);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(plan->fits) << plan->Table();
    EXPECT_EQ(plan->dimensions.layer_chunk_tokens, 16384);

    spec.engine.recompute = RecomputeMode::kAll;
    const auto least = PlanMemory(spec, layout, sizes_, budget);
    ASSERT_TRUE(least.ok()) << least.status();
    std::map<std::string, int64_t> bytes;
    for (const MemoryPlan::Item& item : least->device) bytes[item.name] += item.bytes;
    // q, k, v and the output; statistics and norms' are small.
    const int64_t a_token = 2 * (2 * 28 + 2 * 4) * 128 + 4 * (28 + 2);
    constexpr int64_t kPadding = int64_t{1} << 20;
    EXPECT_LE(bytes["activations of one layer and micro-batch"], sequence * a_token + kPadding);
    EXPECT_LE(bytes["backward workspace"], sequence * 2 * (2 * 28 + 2 * 4) * 128 + kPadding);
    EXPECT_LE(bytes["chunk of a layer or the head"],
              16384 * 2 * (3 * config.layers[0].feed_forward.intermediate + 2 * config.hidden) +
                  kPadding);
    EXPECT_LE(least->device_bytes, int64_t{gibibytes == 74 ? 40 : 72} << 30) << least->Table();
  }
}

TEST_F(GpuPlanTest, TheHeadsChunksAreLongerThanOnTheCpu) {
  ModelDescription config = Config(1);
  for (const auto& [vocabulary, on_cpu, on_gpu] :
       {std::tuple(1000, 1024, 2048), std::tuple(152064, 256, 2048), std::tuple(262144, 256, 1024),
        std::tuple(10'000'000, 64, 64)}) {
    config.vocabulary = vocabulary;
    EXPECT_EQ(HeadChunkTokens(config, 1 << 20, kernels_.LmHeadChunk()), on_cpu) << vocabulary;
    EXPECT_EQ(HeadChunkTokens(config, 1 << 20, sizes_.LmHeadChunk()), on_gpu) << vocabulary;
  }
  EXPECT_EQ(HeadChunkTokens(config, 48, sizes_.LmHeadChunk()), 48) << "a whole micro-batch";
}

}  // namespace
}  // namespace megatrain

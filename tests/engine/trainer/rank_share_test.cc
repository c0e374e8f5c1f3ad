// What each rank of a job has and sends: its part of the state, and the bytes that its
// communicators count in a step, which a schedule tells beforehand.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/thread_pool.h"
#include "engine/comm/thread_communicator.h"
#include "engine/data/sequences/batch.h"
#include "engine/data/sequences/packing.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/random_weights.h"
#include "engine/memory/host_pool.h"
#include "engine/optim/adamw_updater.h"
#include "engine/pipeline/schedule/schedule.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/trained_tensors.h"
#include "engine/trainer/trainer.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/plan/seven_billion.h"

namespace megatrain {
namespace {

JobSpec Job(const ModelReference& reference, Precision precision) {
  JobSpec spec;
  spec.data.sequence_length = static_cast<int64_t>(reference.batch.sequences[0].labels.size());
  spec.training.global_batch = 8;
  spec.training.micro_batch = 1;
  spec.training.precision = precision;
  return spec;
}

// Some ranks in one process, and what they use.
struct Ranks {
  ThreadPool pool{1};
  AdamWUpdater updater{&pool};
  std::unique_ptr<Device> device = CreateCpuDevice(&pool, {});
  ModelLayout layout;
  std::vector<Communicator*> tiles;  // of each rank
  std::unique_ptr<HostPool> host_pool;
  std::unique_ptr<Trainer> trainer;
};

MemoryPlan PlanOf(const JobSpec& spec, const ModelLayout& layout, const KernelSizes& sizes,
                  const ProcessOfJob& process = {}) {
  MemoryBudget budget;
  budget.host_bytes = int64_t{8} << 30;
  absl::StatusOr<MemoryPlan> plan = PlanMemory(spec, layout, sizes, budget, {}, process);
  EXPECT_TRUE(plan.ok() && plan->fits) << plan.status();
  return *std::move(plan);
}

ModelLayout LayoutOf(const ModelReference& reference, const JobSpec& spec) {
  return BuildTrainingLayout(*ReadModelDescription(reference.directory), spec).value();
}

// `communicators`: of the ranks of this process, which is `process` of several.
void Start(const JobSpec& spec, const ModelReference& reference,
           std::vector<CommunicatorSet> communicators, const ProcessOfJob& process, Ranks& ranks,
           Communicator* control = nullptr) {
  ranks.layout = LayoutOf(reference, spec);
  const MemoryPlan plan = PlanOf(spec, ranks.layout, ranks.device->kernels(), process);
  HostPoolOptions options;
  options.capacity = plan.pool_bytes;
  ranks.host_pool = HostPool::Create(options).value();
  std::vector<RankParts> parts(communicators.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].device = ranks.device.get();
    parts[i].updater = &ranks.updater;
    parts[i].communicators = std::move(communicators[i]);
    parts[i].control = control;
    ranks.tiles.push_back(parts[i].communicators.tiles.get());
  }
  auto trainer = Trainer::Create(spec, plan, std::move(parts), ranks.host_pool.get());
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  ranks.trainer = *std::move(trainer);
}

// --- The state.

// The bytes of all parameters: their state, or their weight alone if they are frozen.
int64_t StateBytes(const ModelLayout& layout, DType dtype) {
  return 12 * layout.trained_parameters +
         DTypeBytes(dtype) * (layout.parameters - layout.trained_parameters);
}
// The same with the elements that align tensors in their tiles: of large models a ten-thousandth
// more, of the small ones here a hundredth.
int64_t AlignedBytes(const ModelLayout& layout, DType dtype) {
  int64_t bytes = 0;
  for (const TileLayout& tile : layout.tiles) bytes += TileBytes(AllElements(tile), dtype);
  return bytes;
}

const std::vector<std::string> kFrozen = {"", "model.layers.*.mlp.*"};

TEST(RankShareTest, AProcessPlansItsPartOfTheState) {
  for (const std::string& frozen : kFrozen) {
    JobSpec spec = SevenBillionJob(/*micro_batch=*/1);
    if (!frozen.empty()) spec.training.freeze = {frozen};
    const ModelLayout layout = BuildTrainingLayout(SevenBillion(), spec).value();
    for (const int count : {1, 2, 3, 4, 8}) {
      SCOPED_TRACE(absl::StrCat(count, " processes, frozen: ", frozen));
      const double most =
          (1.0 / count + 0.01) * static_cast<double>(StateBytes(layout, DType::kBF16));
      int64_t all = 0;
      for (int number = 0; number < count; ++number) {
        const CudaKernelSizes sizes;
        MemoryBudget budget = Gpu(int64_t{139} << 30);
        const auto plan = PlanMemory(spec, layout, sizes, budget, {}, {count, number});
        ASSERT_TRUE(plan.ok()) << plan.status();
        int64_t held = 0;
        for (int tile = 0; tile < layout.tile_count(); ++tile) {
          held += TileBytes(plan->dimensions.held(tile, number), DType::kBF16);
        }
        all += held;
        EXPECT_LE(static_cast<double>(held), most);
        const auto tiles = std::find_if(plan->host.begin(), plan->host.end(),
                                        [](const auto& item) { return item.name == "tiles"; });
        ASSERT_NE(tiles, plan->host.end());
        EXPECT_LE(static_cast<double>(tiles->bytes), most);
      }
      EXPECT_EQ(all, AlignedBytes(layout, DType::kBF16));
    }
  }
}

TEST(RankShareTest, AProcessHoldsItsPartOfTheState) {
  const ModelReference reference = LoadModelReference("qwen2");
  for (const auto& [precision, dtype] :
       {std::pair(Precision::kFp32, DType::kF32), std::pair(Precision::kBf16, DType::kBF16)}) {
    for (const std::string& frozen : kFrozen) {
      JobSpec spec = Job(reference, precision);
      if (!frozen.empty()) spec.training.freeze = {frozen};
      for (const int count : {1, 2, 3, 4, 8}) {
        SCOPED_TRACE(absl::StrCat(count, " processes, frozen: ", frozen));
        std::vector<CommunicatorSet> sets =
            CreateThreadCommunicators(count, absl::InfiniteDuration());
        int64_t all = 0;
        for (int number = 0; number < count; ++number) {
          Ranks one;
          std::vector<CommunicatorSet> own;
          own.push_back(std::move(sets[static_cast<size_t>(number)]));
          ASSERT_NO_FATAL_FAILURE(Start(spec, reference, std::move(own), {count, number}, one));
          int64_t held = 0;
          for (const ProcessTile& tile : one.trainer->tiles()) {
            ASSERT_EQ(tile.size(), 1u);
            held += TileBytes(tile.front().held, dtype);
          }
          all += held;
          const double most =
              (1.0 / count + 0.01) * static_cast<double>(StateBytes(one.layout, dtype));
          EXPECT_LE(static_cast<double>(held), most);
          // Leases are whole pages, one more for each tile.
          const int64_t leased = one.host_pool->bytes_in_use(HostKind::kTiles);
          EXPECT_GE(leased, held);
          EXPECT_LE(static_cast<double>(leased - 4096 * one.layout.tile_count()), most);
        }
        EXPECT_EQ(all, AlignedBytes(LayoutOf(reference, spec), dtype));
      }
    }
  }
}

// --- The traffic of a step.

Traffic Minus(const Traffic& a, const Traffic& b) {
  return {a.gathered_bytes - b.gathered_bytes, a.reduced_bytes - b.reduced_bytes};
}

// What rank `shape.rank` sends in a schedule.
Traffic TrafficOf(const Schedule& schedule, const PipelineShape& shape) {
  Traffic traffic;
  for (const Op& op : schedule.ops) {
    if (const auto* gather = std::get_if<GatherWeightsOp>(&op.what)) {
      const int64_t own = shape.shard_elements(gather->tile) + shape.stateless_held(gather->tile);
      traffic.gathered_bytes += (shape.ranks - 1) * own * shape.weight_element_bytes;
    } else if (const auto* reduce = std::get_if<ReduceGradientOp>(&op.what)) {
      traffic.reduced_bytes +=
          4 * (shape.state_elements(reduce->tile) - shape.shard_elements(reduce->tile));
    }
  }
  return traffic;
}

// `all`: of all ranks together, because shards are even but for an alignment. Each of N ranks sends
// (N - 1) / N of the elements twice as weights, for the forward and the backward pass, and of those
// that are trained once as gradients. What is still on the device is not gathered again.
void ExpectWithinBound(const Traffic& all, const PipelineShape& shape, const ModelLayout& layout) {
  int64_t elements = 0, trained = 0;
  for (const TileLayout& tile : layout.tiles) {
    elements += tile.elements;
    trained += tile.state_elements();
  }
  EXPECT_LE(all.gathered_bytes, 2 * (shape.ranks - 1) * elements * shape.weight_element_bytes);
  EXPECT_LE(all.reduced_bytes, (shape.ranks - 1) * trained * 4);
  EXPECT_EQ(all.gathered_bytes > 0, shape.ranks > 1);
}

struct Case {
  std::string family;
  Precision precision;
  bool clipped = true;
  int64_t gradient_shards = 1;
  bool frozen = false;
};

class TrafficTest : public ::testing::TestWithParam<Case> {};

TEST_P(TrafficTest, IsWhatTheScheduleSaysAndWithinTheBound) {
  const ModelReference reference = LoadModelReference(GetParam().family);
  for (const int count : {1, 2, 3, 4}) {
    if (GetParam().gradient_shards % count != 0 && GetParam().gradient_shards > 1) continue;
    SCOPED_TRACE(absl::StrCat(count, " ranks"));
    JobSpec spec = Job(reference, GetParam().precision);
    spec.optimizer.max_gradient_norm = GetParam().clipped ? 1 : 0;
    spec.training.gradient_shards = GetParam().gradient_shards;
    if (GetParam().frozen) spec.training.freeze = {"model.layers.0.*", "*norm*"};
    spec.engine.devices = count;
    Ranks ranks;
    ASSERT_NO_FATAL_FAILURE(Start(
        spec, reference, CreateThreadCommunicators(count, absl::InfiniteDuration()), {}, ranks));
    const auto weights = HfWeights::Open(reference.directory, ranks.layout);
    for (int i = 0; i < ranks.layout.tile_count(); ++i) {
      for (const Tile& part : ranks.trainer->tiles()[static_cast<size_t>(i)]) {
        ASSERT_TRUE((*weights)->LoadTile(i, part).ok());
      }
    }
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < 8; ++i) {
      sequences.push_back(reference.batch.sequences[i % reference.batch.sequences.size()]);
    }
    std::vector<PipelineState> states(static_cast<size_t>(count));
    std::vector<Traffic> before(static_cast<size_t>(count));
    for (int64_t step = 1; step <= 3; ++step) {
      const Batch batch = MakeBatch(step, sequences, spec.training.micro_batch);
      ASSERT_TRUE(ranks.trainer->Submit(batch, 1e-3).ok());
      ASSERT_TRUE(ranks.trainer->Collect().ok());
      Traffic all;
      for (int rank = 0; rank < count; ++rank) {
        const auto i = static_cast<size_t>(rank);
        const Traffic sent = Minus(ranks.tiles[i]->traffic(), before[i]);
        before[i] = ranks.tiles[i]->traffic();
        PipelineShape shape = ranks.trainer->dimensions().shape;
        shape.rank = rank;
        const Traffic told = TrafficOf(
            BuildTrainingStep(shape, PartOfBatch(batch, rank, count).micro_batch_tokens, states[i],
                              static_cast<int>(batch.micro_batch_tokens.size())),
            shape);
        EXPECT_EQ(sent.gathered_bytes, told.gathered_bytes) << "rank " << rank;
        EXPECT_EQ(sent.reduced_bytes, told.reduced_bytes) << "rank " << rank;
        all.gathered_bytes += sent.gathered_bytes;
        all.reduced_bytes += sent.reduced_bytes;
      }
      ExpectWithinBound(all, ranks.trainer->dimensions().shape, ranks.layout);
    }
  }
}

// By the parameters themselves: alignment is nothing here.
TEST(RankShareTest, ALargeModelsTrafficIsWithinTheBound) {
  const JobSpec spec = SevenBillionJob(/*micro_batch=*/1);
  const ModelLayout layout = BuildTrainingLayout(SevenBillion(), spec).value();
  for (const int count : {2, 4, 8}) {
    const CudaKernelSizes sizes;
    const auto plan =
        PlanMemory(spec, layout, sizes, Gpu(int64_t{139} << 30), {}, {count, /*number=*/0});
    ASSERT_TRUE(plan.ok()) << plan.status();
    PipelineShape shape = plan->dimensions.shape;
    const std::vector<int64_t> tokens(static_cast<size_t>(16 / count), 4096);
    for (shape.rank = 0; shape.rank < count; ++shape.rank) {
      PipelineState state;
      for (int step = 0; step < 2; ++step) {
        const Traffic sent = TrafficOf(BuildTrainingStep(shape, tokens, state), shape);
        const double of_others =
            1.0001 * (count - 1) / count * static_cast<double>(layout.trained_parameters);
        EXPECT_LE(static_cast<double>(sent.gathered_bytes), 2 * of_others * 2);
        EXPECT_LE(static_cast<double>(sent.reduced_bytes), of_others * 4);
        EXPECT_GT(static_cast<double>(sent.reduced_bytes), 0.99 * of_others * 4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, TrafficTest,
    ::testing::Values(
        Case{"llama", Precision::kFp32}, Case{"llama", Precision::kBf16, false},
        Case{"llama_tied", Precision::kBf16}, Case{"qwen2", Precision::kBf16, false},
        Case{"mixtral", Precision::kBf16}, Case{"mixtral", Precision::kFp32, false},
        Case{"gemma4_shared", Precision::kBf16}, Case{"qwen2", Precision::kBf16, true, 1, true},
        Case{"mixtral", Precision::kFp32, true, 1, true}, Case{"llama", Precision::kFp32, true, 4},
        Case{"llama_tied", Precision::kBf16, true, 4}, Case{"mixtral", Precision::kBf16, true, 4}),
    [](const auto& info) {
      const Case& c = info.param;
      return absl::StrCat(c.family, c.precision == Precision::kBf16 ? "_bf16" : "_fp32",
                          c.clipped ? "_clipped" : "_unclipped",
                          c.gradient_shards > 1 ? "_shards" : "", c.frozen ? "_frozen" : "");
    });

// --- What all ranks compute.

TEST(RankShareTest, AllProcessesHaveTheSameLogits) {
  const ModelReference reference = LoadModelReference("qwen2");
  const JobSpec spec = Job(reference, Precision::kFp32);
  std::vector<CommunicatorSet> sets = CreateThreadCommunicators(2, absl::InfiniteDuration());
  std::vector<float> logits[2];
  std::vector<std::thread> processes;
  for (const int number : {0, 1}) {
    processes.emplace_back([&, number] {
      std::vector<CommunicatorSet> own;
      own.push_back(std::move(sets[static_cast<size_t>(number)]));
      const std::unique_ptr<Communicator> control = std::move(own[0].control);
      Ranks one;
      Start(spec, reference, std::move(own), {2, number}, one, control.get());
      const auto weights = HfWeights::Open(reference.directory, one.layout);
      for (int i = 0; i < one.layout.tile_count(); ++i) {
        EXPECT_TRUE(
            (*weights)->LoadTile(i, one.trainer->tiles()[static_cast<size_t>(i)].front()).ok());
      }
      logits[number] =
          *one.trainer->Logits(MakeBatch(1, {reference.batch.sequences[0]}, 1), {{0, 4}});
    });
  }
  for (std::thread& process : processes) process.join();
  EXPECT_NE(logits[0], std::vector<float>(logits[0].size()));
  EXPECT_EQ(logits[1], logits[0]);
}

// The tables of rotary angles are uploaded in pieces of 4,096 positions. Only differences of
// positions show in attention: where a text begins is the same.
TEST(RankShareTest, PositionsBeyondTheFirstPieceHaveTheirAngles) {
  ModelDescription model = UniformModel({.vocabulary = 64,
                                         .hidden = 64,
                                         .layers = 2,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .head_dim = 16,
                                         .intermediate = 64,
                                         .max_positions = 8192});
  model.initializer_range = 0.3;  // attention is sharp
  JobSpec spec;
  spec.data.sequence_length = 4096 + 256;
  spec.training.global_batch = spec.training.micro_batch = 1;
  spec.training.precision = Precision::kFp32;
  Ranks one;
  one.layout = BuildTrainingLayout(model, spec).value();
  const MemoryPlan plan = PlanOf(spec, one.layout, one.device->kernels());
  HostPoolOptions options;
  options.capacity = plan.pool_bytes;
  one.host_pool = HostPool::Create(options).value();
  one.trainer =
      Trainer::Create(spec, plan, one.device.get(), &one.updater, one.host_pool.get()).value();
  for (const ProcessTile& tile : one.trainer->tiles()) InitializeTile(model, 1, tile.front());
  const auto loss = [&](int32_t first) {
    Sequence text = WholeSequence({3, 9, 27, 17, 51, 25, 11, 33, 35, 41, 59, 49, 19, 57, 43, 1});
    for (int32_t& position : text.position_ids) position += first;
    return *one.trainer->EvaluateLossSum(MakeBatch(1, {text}, 1));
  };
  EXPECT_NEAR(loss(4090), loss(0), 1e-3 * loss(0));
}

}  // namespace
}  // namespace megatrain

// A trainer of a small model with random weights, on one device or several.
#ifndef MEGATRAIN_TESTS_ENGINE_TRAINER_SMALL_TRAINER_H_
#define MEGATRAIN_TESTS_ENGINE_TRAINER_SMALL_TRAINER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/thread_pool.h"
#include "engine/comm/thread_communicator.h"
#include "engine/data/sequences/batch.h"
#include "engine/data/sequences/packing.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/hf/random_weights.h"
#include "engine/memory/host_pool.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_updater.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/trained_tensors.h"
#include "engine/trainer/trainer.h"
#include "tests/engine/trainer/watched_device.h"

namespace megatrain {

inline constexpr int64_t kSmallHidden = 64;
inline constexpr int64_t kSmallLayers = 4;
inline constexpr int64_t kSmallSequence = 16;
inline constexpr int64_t kSmallBatch = 4;  // sequences, each a micro-batch

inline ModelDescription SmallModel() {
  ModelDescription model = UniformModel({.vocabulary = 64,
                                         .hidden = kSmallHidden,
                                         .layers = kSmallLayers,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .head_dim = 16,
                                         .intermediate = 64,
                                         .max_positions = 32});
  model.initializer_range = 0.3;  // so that each layer counts
  return model;
}

inline JobSpec SmallJob() {
  JobSpec spec;
  spec.data.sequence_length = kSmallSequence;
  spec.training.global_batch = kSmallBatch;
  spec.training.micro_batch = 1;
  spec.training.precision = Precision::kFp32;
  return spec;
}

// The batch of a step: its own tokens.
inline Batch SmallStep(int64_t step) {
  std::mt19937 random(static_cast<uint32_t>(step));
  std::vector<Sequence> sequences;
  for (int64_t i = 0; i < kSmallBatch; ++i) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < kSmallSequence; ++t) ids.push_back(static_cast<int32_t>(random() % 64));
    sequences.push_back(WholeSequence(std::move(ids)));
  }
  return MakeBatch(step, sequences, 1);
}

// The trainer, and what it uses. Members are destroyed from the last one back.
struct SmallTrainer {
  ThreadPool pool{1};
  AdamWUpdater updater{&pool};
  WatchedDevice device{CreateCpuDevice(&pool, {})};
  ModelLayout layout;
  MemoryPlan plan;
  std::unique_ptr<HostPool> host_pool;
  std::unique_ptr<Trainer> trainer;

  // Plans the job, and reserves the pool for it alone.
  void Plan(const JobSpec& spec, const ProcessOfJob& process = {}) {
    layout = BuildTrainingLayout(SmallModel(), spec).value();
    MemoryBudget budget;
    budget.host_bytes = int64_t{8} << 30;
    plan = PlanMemory(spec, layout, device.kernels(), budget, {}, process).value();
    ASSERT_TRUE(plan.fits) << plan.misfit;
    HostPoolOptions options;
    options.capacity = plan.pool_bytes;
    host_pool = HostPool::Create(options).value();
  }
  // Makes the trainer of ranks with these communicators, which may be those of one rank alone.
  absl::Status Create(const JobSpec& spec, std::vector<CommunicatorSet> communicators,
                      Communicator* control = nullptr) {
    std::vector<RankParts> parts(communicators.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].device = &device;
      parts[i].updater = &updater;
      parts[i].communicators = std::move(communicators[i]);
      parts[i].control = control;
    }
    auto created = Trainer::Create(spec, plan, std::move(parts), host_pool.get());
    if (created.ok()) trainer = *std::move(created);
    return created.status();
  }
  void FillTiles(uint64_t seed) {
    for (const ProcessTile& parts : trainer->tiles()) {
      for (const Tile& tile : parts) InitializeTile(layout.model, seed, tile);
    }
  }
  // Makes the step and returns its record.
  StepRecord Step(int64_t step) {
    const absl::Status submitted = trainer->Submit(SmallStep(step), 1e-2);
    EXPECT_TRUE(submitted.ok()) << submitted;
    return Collect();
  }
  StepRecord Collect() {
    const absl::StatusOr<StepRecord> record = trainer->Collect();
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(StepRecord());
  }
  // The content of all tiles.
  std::vector<char> State() const {
    std::vector<char> state;
    for (const ProcessTile& parts : trainer->tiles()) {
      for (const Tile& tile : parts) {
        const auto* const begin = static_cast<const char*>(tile.weights);
        state.insert(state.end(), begin, begin + TileBytes(tile.held, tile.weight_dtype));
      }
    }
    return state;
  }
};

// The communicators of the ranks of one process. A rank alone has none.
inline std::vector<CommunicatorSet> Communicators(int ranks) {
  if (ranks == 1) return std::vector<CommunicatorSet>(1);
  return CreateThreadCommunicators(ranks, absl::InfiniteDuration());
}

// Starts a job of spec.engine.devices ranks in one process.
inline std::unique_ptr<SmallTrainer> StartSmall(const JobSpec& spec) {
  auto small = std::make_unique<SmallTrainer>();
  small->Plan(spec);
  const absl::Status created =
      small->Create(spec, Communicators(static_cast<int>(spec.engine.devices)));
  EXPECT_TRUE(created.ok()) << created;
  small->FillTiles(/*seed=*/1);
  return small;
}

// Holds each lane that begins an operation of this name until LetGo. Every operation of a step
// waits for "upload batch", so that nothing of a step that is held there has run.
class Hold {
 public:
  Hold(WatchedDevice& device, const std::string& name) {
    device.begins = [name, gone = let_go_.get_future().share()](const std::string& begun) {
      if (begun == name) gone.wait();
    };
  }
  void LetGo() { let_go_.set_value(); }

 private:
  std::promise<void> let_go_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_TRAINER_SMALL_TRAINER_H_

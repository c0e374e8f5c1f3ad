// Ranks that load whole tiles read what other ranks update. The schedules of all ranks are run side
// by side on clocks of what is certain to be done, to see that each load comes behind the updates
// before it and ahead of those after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/pipeline/dependency_tracker.h"
#include "engine/pipeline/schedule/schedule.h"
#include "tests/engine/pipeline/schedule/schedule_replay.h"

namespace megatrain {
namespace {

constexpr int kRanks = 3;
// By rank and lane, how many operations are certain to be done.
using Clock = std::array<LaneCounts, kRanks>;

void Join(const Clock& other, Clock& clock) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int lane = 0; lane < kLanes; ++lane) {
      clock[rank][lane] = std::max(clock[rank][lane], other[rank][lane]);
    }
  }
}

struct Ran {
  Op op;
  int step;             // the training steps before it
  int64_t number;       // in its lane
  Clock before, after;  // done when it starts, and when it ends
};

bool Meets(const Op& op) {
  return op.is<AwaitUpdatesOp>() || op.is<ReduceGradientOp>() || op.is<ShareResultsOp>();
}

class RanksRun {
 public:
  explicit RanksRun(const std::array<PipelineShape, kRanks>& shapes) : shapes_(shapes) {}

  // Runs a schedule of each rank.
  void Run(const std::array<Schedule, kRanks>& schedules, int step) {
    std::array<size_t, kRanks> next = {};
    while (true) {
      int meeting = 0;
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::vector<Op>& ops = schedules[rank].ops;
        bool meets = false;
        for (size_t& i = next[rank]; i < ops.size() && !meets; ++i) {
          Start(rank, ops[i], step);
          meets = Meets(ops[i]);
        }
        if (meets) ++meeting;
      }
      if (meeting == 0) return;
      ASSERT_EQ(meeting, kRanks);
      Meet();
    }
  }

  const std::vector<Ran>& of(int rank) const { return ran_[rank]; }

 private:
  void Start(int rank, const Op& op, int step) {
    const int lane = static_cast<int>(op.lane);
    std::array<std::vector<size_t>, kLanes>& lanes = lanes_[rank];
    LaneCounts waits = trackers_[rank].Add(op);
    waits[lane] = static_cast<int64_t>(lanes[lane].size());
    Ran ran{op, step, waits[lane] + 1, {}, {}};
    for (int l = 0; l < kLanes; ++l) {
      if (waits[l] > 0)
        Join(ran_[rank][lanes[l][static_cast<size_t>(waits[l] - 1)]].after, ran.before);
    }
    ran.after = ran.before;
    ran.after[rank][lane] = ran.number;
    lanes[lane].push_back(ran_[rank].size());
    ran_[rank].push_back(std::move(ran));
  }

  // The last operation of each rank ends when all have started it.
  void Meet() {
    Clock all = {};
    for (const std::vector<Ran>& ran : ran_) Join(ran.back().before, all);
    for (int rank = 0; rank < kRanks; ++rank) {
      Ran& last = ran_[rank].back();
      ASSERT_STREQ(last.op.name(), ran_[0].back().op.name());
      // A rank without a shard receives nothing that it would have to wait for.
      const auto* reduce = last.op.as<ReduceGradientOp>();
      if (reduce != nullptr && shapes_[rank].shard_elements(reduce->tile) == 0) continue;
      Join(all, last.after);
    }
  }

  const std::array<PipelineShape, kRanks> shapes_;
  std::array<DependencyTracker, kRanks> trackers_;
  std::array<std::vector<Ran>, kRanks> ran_;
  std::array<std::array<std::vector<size_t>, kLanes>, kRanks> lanes_;
};

struct Range {
  int tile = -1;
  int64_t begin = 0, end = 0;
};

// The elements of host weights that the operation writes.
Range Updated(const Op& op) {
  if (const auto* update = op.as<UpdateTileOp>()) return {update->tile, update->begin, update->end};
  if (const auto* piece = op.as<DeviceUpdateOp>()) return {piece->tile, piece->begin, piece->end};
  return {};
}

// layers, tied, clipping, parts updated on the device, frozen elements of each tile, embedding
// trained
using Grid = std::tuple<Layers, bool, bool, int, int64_t, bool>;

class WholeLoads : public testing::TestWithParam<Grid> {};

TEST_P(WholeLoads, ComeBetweenTheUpdatesOfAllRanks) {
  const auto& [layers, tied, clipping, device_parts, frozen, embedding_trained] = GetParam();
  std::array<PipelineShape, kRanks> shapes;
  for (int rank = 0; rank < kRanks; ++rank) {
    PipelineShape& shape = shapes[rank] = MakeShape(layers, tied, 3, clipping, false, 5, 12);
    shape.slab_per_tile = clipping;
    if (!clipping) shape.gradient_slabs = 3;
    shape.ranks = kRanks;
    shape.rank = rank;
    shape.whole_loads = true;
    shape.tile_elements.back() = 100;  // the shard of the last rank alone
    shape.stateless_elements.assign(static_cast<size_t>(shape.tiles()), frozen);
    shape.stateless_elements.back() = 0;
    shape.embedding_trained = embedding_trained;
    if (!embedding_trained) shape.stateless_elements[0] = tied ? 872 : 1000;
    shape.device_update_parts = shape.first_tile_device_parts = device_parts;
    shape.device_piece_elements = kUpdateAlignment;
  }
  RanksRun run(shapes);
  std::array<PipelineState, kRanks> states;
  const auto all = [&](int step, auto build) {
    std::array<Schedule, kRanks> schedules;
    for (int rank = 0; rank < kRanks; ++rank) {
      // One of the ranks has no micro-batch, in turn.
      constexpr std::array<size_t, kRanks> kMicroBatches = {0, 3, 5};
      schedules[rank] =
          build(shapes[rank], std::vector<int64_t>(kMicroBatches[(rank + step) % kRanks], 16),
                states[rank]);
    }
    run.Run(schedules, step);
  };
  for (int step = 0; step < 5; ++step) {
    all(step, [](const PipelineShape& shape, const std::vector<int64_t>& tokens,
                 PipelineState& state) { return BuildTrainingStep(shape, tokens, state); });
    if (step == 1) all(step + 1, BuildEvaluation);
    if (step == 2) {
      all(step + 1,
          [](const PipelineShape& shape, const std::vector<int64_t>& tokens, PipelineState& state) {
            return BuildPrediction(shape, tokens, CacheUse::kFill, state);
          });
    }
    if (step == 3) states = {};  // as after a pause
  }
  int64_t pairs = 0;
  for (int reader = 0; reader < kRanks; ++reader) {
    for (const Ran& load : run.of(reader)) {
      const auto* what = load.op.as<LoadTileOp>();
      if (what == nullptr) continue;
      for (int writer = 0; writer < kRanks; ++writer) {
        for (const Ran& update : run.of(writer)) {
          const Range range = Updated(update.op);
          if (range.tile != what->tile || range.end <= what->begin || range.begin >= what->end) {
            continue;
          }
          ++pairs;
          const bool earlier = update.step < load.step;
          const Ran &first = earlier ? update : load, &second = earlier ? load : update;
          ASSERT_GE(second.before[earlier ? writer : reader][static_cast<int>(first.op.lane)],
                    first.number)
              << second.op.name() << " of rank " << (earlier ? reader : writer) << ", step "
              << second.step << ", is not ordered after " << first.op.name()
              << " of the other in step " << first.step << ", tile " << what->tile;
        }
      }
    }
  }
  EXPECT_GT(pairs, 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, WholeLoads,
                         testing::Combine(testing::Values(Layers{1}, Layers{4},
                                                          Layers{3, true, false},
                                                          Layers{2, true, true}),
                                          testing::Bool(), testing::Bool(),
                                          testing::Values(0, 24, kUpdateParts),
                                          testing::Values(0, 384), testing::Bool()));

}  // namespace
}  // namespace megatrain

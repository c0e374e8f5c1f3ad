// Properties that hold for every schedule, over a grid of shapes and several steps: the schedule is
// replayed in the order given, against a model of what each buffer holds.
#include "engine/pipeline/schedule/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "engine/pipeline/dependency_tracker.h"
#include "tests/engine/pipeline/schedule/op_access.h"
#include "tests/engine/pipeline/schedule/schedule_replay.h"

namespace megatrain {
namespace {

OpAccess::Resources SetOf(absl::Span<const Resource> resources) {
  OpAccess::Resources set;
  for (const Resource& resource : resources) set.insert({resource.kind, resource.index});
  return set;
}

void ExpectDeclared(const Schedule& schedule, const PipelineShape& shape, bool embedding_rows) {
  for (size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    const OpAccess access = AccessOf(schedule, i, shape, embedding_rows);
    EXPECT_EQ(SetOf(op.reads), access.reads) << op.name() << ", reads; operation " << i;
    EXPECT_EQ(SetOf(op.writes), access.writes) << op.name() << ", writes; operation " << i;
  }
}

// Parts updated on the device, and whether the embedding is read from the host.
using Updates = std::pair<int, bool>;
// How many ranks there are, whose schedule it is, how many folds each has, and whether each loads
// whole tiles.
struct Ranks {
  int ranks = 1, rank = 0, folds = 1;
  bool whole_loads = false;
};
constexpr Ranks kAlone;
constexpr int kJoined = 10;
enum class Frozen { kNothing, kEmbedding, kPrefix, kSuffix, kAllButHead, kParts };
// layers (below 0: with experts, below -kJoined: so many and a dense unit beside these), tied,
// buffers, clipping, stash on the host, micro-batches, sweep, updates, frozen, ranks
using Grid = std::tuple<int, bool, int, bool, bool, int, int, Updates, Frozen, Ranks>;

class ScheduleProperties : public testing::TestWithParam<Grid> {
 protected:
  PipelineShape Shape() const {
    const auto [layers, tied, buffers, clipping, host, micro_batches, sweep, updates, frozen,
                ranks] = GetParam();
    PipelineShape shape = MakeShape({std::abs(layers) % kJoined, layers < 0, layers < -kJoined},
                                    tied, buffers, clipping, host, sweep, 3);
    shape.slab_per_tile = clipping || micro_batches > sweep;
    if (shape.slab_per_tile) shape.gradient_slabs = shape.tiles();
    Freeze(frozen, shape);
    shape.kept = shape.keeping_stages(shape.lowest_stage()) * sweep / 2;
    shape.kept_everything = shape.kept / 2;
    shape.device_update_parts = updates.first;
    shape.first_tile_device_parts = updates.first == 24 ? 40 : updates.first;
    shape.device_piece_elements = 3 * kUpdateAlignment;
    shape.embedding_from_host = updates.second;
    shape.row_elements = 300;
    shape.ranks = ranks.ranks;
    shape.rank = ranks.rank;
    shape.folds = ranks.folds;
    shape.whole_loads = ranks.whole_loads;
    return shape;
  }
  // A tied tile keeps its norm's state where its matrix is frozen.
  static void Freeze(Frozen frozen, PipelineShape& shape) {
    if (frozen == Frozen::kNothing) return;
    std::vector<int64_t>& stateless = shape.stateless_elements;
    stateless.assign(shape.tiles(), frozen == Frozen::kParts ? 384 : 0);
    if (frozen == Frozen::kParts) return;
    const int layer_tiles = shape.tiles() - (shape.tied ? 1 : 2);
    for (int tile = 1; tile < shape.tiles(); ++tile) {
      const bool is_frozen = (frozen == Frozen::kPrefix && tile <= layer_tiles / 2) ||
                             (frozen == Frozen::kSuffix && tile > layer_tiles / 2) ||
                             (frozen == Frozen::kAllButHead && tile <= layer_tiles);
      if (is_frozen) stateless[tile] = 1000;
    }
    if (frozen == Frozen::kSuffix) return;
    shape.embedding_trained = false;
    stateless[0] = shape.tied ? 872 : 1000;
  }
  std::vector<int64_t> Tokens() const { return std::vector<int64_t>(std::get<5>(GetParam()), 16); }
};

TEST_P(ScheduleProperties, EveryOperationFindsWhatItNeedsOverThreeSteps) {
  const PipelineShape shape = Shape();
  ScheduleReplay replay(shape);
  PipelineState state;
  for (int step = 0; step < 3; ++step) {
    replay.Step(BuildTrainingStep(shape, Tokens(), state), static_cast<int>(Tokens().size()));
    if (step != 1) continue;
    // An evaluation between steps finds the weights and leaves their whereabouts right.
    replay.Step(BuildEvaluation(shape, Tokens(), state), static_cast<int>(Tokens().size()),
                /*training=*/false);
    for (const CacheUse cache : {CacheUse::kFill, CacheUse::kAttend}) {
      replay.Step(BuildPrediction(shape, Tokens(), cache, state), static_cast<int>(Tokens().size()),
                  /*training=*/false);
    }
  }
}

// Operations declare exactly what they touch, in steps of both kinds, evaluations and saves.
TEST_P(ScheduleProperties, EveryOperationDeclaresWhatItReadsAndWrites) {
  const PipelineShape shape = Shape();
  PipelineState state;
  for (const bool rows_first : {true, false}) {
    state.rows_first = rows_first;
    ExpectDeclared(BuildTrainingStep(shape, Tokens(), state), shape, rows_first);
    ExpectDeclared(BuildEvaluation(shape, Tokens(), state), shape, /*embedding_rows=*/false);
    for (const CacheUse cache : {CacheUse::kNone, CacheUse::kFill, CacheUse::kAttend}) {
      ExpectDeclared(BuildPrediction(shape, Tokens(), cache, state), shape, false);
    }
  }
  ExpectDeclared(BuildCheckpoint(shape), shape, false);
  ExpectDeclared(BuildCheckpointEnd(), shape, false);
}

// Returns what the operation writes, also where it counts as a reader among others of its kind.
std::vector<Resource> Writes(const Op& op) {
  std::vector<Resource> writes(op.writes.begin(), op.writes.end());
  if (const auto* piece = op.as<DeviceUpdateOp>()) {
    for (const Resource& r : op.reads) {
      if (r.kind == ResourceKind::kTileWeights || r.kind == ResourceKind::kTileMoments) {
        writes.push_back(r);
      }
    }
    if (piece->weight_buffer) {
      writes.push_back({ResourceKind::kWeightBuffer, *piece->weight_buffer});
    }
  }
  return writes;
}

// Every pair of conflicting operations is ordered by the derived waits: checked by closing the
// waits transitively.
TEST_P(ScheduleProperties, DerivedWaitsOrderEveryConflictAndHaveNoCycle) {
  const PipelineShape shape = Shape();
  PipelineState state;
  DependencyTracker tracker;
  std::vector<Op> ops;
  std::vector<LaneCounts> before;  // what each operation is certain to run after, by lane
  std::vector<int64_t> numbers;
  std::array<std::vector<int>, kLanes> lanes;
  for (int step = 0; step < 3; ++step) {
    // As behind a step that was taken back.
    if (step == 2) state = {};
    for (Op& op : BuildTrainingStep(shape, Tokens(), state).ops) {
      const int lane = static_cast<int>(op.lane);
      LaneCounts known = tracker.Add(op);
      for (int l = 0; l < kLanes; ++l) {
        ASSERT_LE(known[l], static_cast<int64_t>(lanes[l].size())) << "waits for the future";
      }
      if (!lanes[lane].empty()) {
        known[lane] = static_cast<int64_t>(lanes[lane].size());
      }
      LaneCounts closed = known;
      for (int l = 0; l < kLanes; ++l) {
        if (known[l] == 0) continue;
        const LaneCounts& theirs = before[lanes[l][known[l] - 1]];
        for (int k = 0; k < kLanes; ++k) closed[k] = std::max(closed[k], theirs[k]);
      }
      lanes[lane].push_back(static_cast<int>(ops.size()));
      numbers.push_back(static_cast<int64_t>(lanes[lane].size()));
      before.push_back(closed);
      ops.push_back(std::move(op));
    }
  }
  auto key = [](const Resource& r) { return std::make_pair(static_cast<int>(r.kind), r.index); };
  std::map<std::pair<int, int>, std::vector<int>> users;
  for (size_t i = 0; i < ops.size(); ++i) {
    std::set<std::pair<int, int>> writes, all;
    for (const Resource& r : Writes(ops[i])) writes.insert(key(r)), all.insert(key(r));
    for (const Resource& r : ops[i].reads) all.insert(key(r));
    for (const auto& resource : all) {
      for (int j : users[resource]) {
        bool other_writes = false;
        for (const Resource& r : Writes(ops[j])) other_writes |= key(r) == resource;
        // Pieces of an update touch different elements.
        const auto* piece = ops[i].as<DeviceUpdateOp>();
        const auto* other = ops[j].as<DeviceUpdateOp>();
        if (piece != nullptr && other != nullptr && ops[i].step_slot == ops[j].step_slot &&
            piece->tile == other->tile) {
          continue;
        }
        if (!writes.count(resource) && !other_writes) continue;
        EXPECT_GE(before[i][static_cast<int>(ops[j].lane)], numbers[j])
            << ops[i].name() << " is not ordered after " << ops[j].name();
      }
      users[resource].push_back(static_cast<int>(i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ScheduleProperties,
    testing::Combine(testing::Values(1, 2, 5), testing::Bool(), testing::Values(1, 2, 3, 5),
                     testing::Bool(), testing::Bool(), testing::Values(1, 2, 5),
                     testing::Values(1, 2, 5),
                     testing::Values(Updates(0, false), Updates(24, true), Updates(64, true)),
                     testing::Values(Frozen::kNothing), testing::Values(kAlone)));

INSTANTIATE_TEST_SUITE_P(ShapesWithExperts, ScheduleProperties,
                         testing::Combine(testing::Values(-1, -3, -13), testing::Bool(),
                                          testing::Values(1, 2, 4), testing::Bool(),
                                          testing::Bool(), testing::Values(1, 5),
                                          testing::Values(1, 2, 5),
                                          testing::Values(Updates(0, false), Updates(24, true)),
                                          testing::Values(Frozen::kNothing),
                                          testing::Values(kAlone)));

INSTANTIATE_TEST_SUITE_P(FrozenShapes, ScheduleProperties,
                         testing::Combine(testing::Values(1, 4, -3, -12), testing::Bool(),
                                          testing::Values(2), testing::Bool(), testing::Bool(),
                                          testing::Values(5), testing::Values(2, 5),
                                          testing::Values(Updates(0, false), Updates(24, true)),
                                          testing::Values(Frozen::kEmbedding, Frozen::kPrefix,
                                                          Frozen::kSuffix, Frozen::kAllButHead,
                                                          Frozen::kParts),
                                          testing::Values(kAlone)));

// With 24 ranks most shards are empty.
INSTANTIATE_TEST_SUITE_P(
    ShapesOfRanks, ScheduleProperties,
    testing::Combine(testing::Values(1, 4, -3, -12), testing::Bool(), testing::Values(2, 3),
                     testing::Bool(), testing::Bool(), testing::Values(1, 5), testing::Values(5),
                     testing::Values(Updates(0, false), Updates(24, false)),
                     testing::Values(Frozen::kNothing, Frozen::kPrefix, Frozen::kParts),
                     testing::Values(Ranks{2, 0}, Ranks{3, 1}, Ranks{24, 5}, Ranks{24, 23},
                                     Ranks{1, 0, 4}, Ranks{2, 1, 2}, Ranks{1, 0, 8},
                                     Ranks{2, 1, 2, true}, Ranks{3, 1, 1, true},
                                     Ranks{24, 23, 1, true})));

// Two sweeps of whole folds.
INSTANTIATE_TEST_SUITE_P(
    ShapesOfFolds, ScheduleProperties,
    testing::Combine(testing::Values(1, 4, -3, -12), testing::Values(false), testing::Values(2, 3),
                     testing::Bool(), testing::Bool(), testing::Values(5), testing::Values(3),
                     testing::Values(Updates(0, false), Updates(24, true)),
                     testing::Values(Frozen::kNothing, Frozen::kPrefix, Frozen::kParts),
                     testing::Values(Ranks{1, 0, 2}, Ranks{1, 0, 4}, Ranks{1, 0, 8})));

}  // namespace
}  // namespace megatrain

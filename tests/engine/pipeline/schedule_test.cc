// Properties that hold for every schedule, over a grid of shapes and several steps: the schedule is
// replayed in the order given, against a model of what each buffer holds.
#include "engine/pipeline/schedule.h"

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
#include "tests/engine/pipeline/op_access.h"
#include "tests/engine/pipeline/schedule_replay.h"

namespace megatrain {
namespace {

// Layers of one kind: dense, or with experts in two tiles, or those and a dense unit.
struct Layers {
  int count = 0;
  bool experts = false, joins = false;
};

PipelineShape MakeShape(Layers layers, bool tied, int buffers, bool clipping, bool host_stash,
                        int sweep, int slabs) {
  PipelineShape shape;
  int tiles = 1;
  for (int i = 0; i < layers.count; ++i) {
    shape.stages.push_back({.tile = tiles++});
    if (!layers.experts) continue;
    shape.stages.push_back({.tile = tiles, .expert_tiles = 2, .joins = layers.joins});
    tiles = shape.stages.back().last_tile() + 1;
  }
  shape.tied = tied;
  shape.tile_elements.assign(tiles + (tied ? 0 : 1), 1000);
  shape.weight_buffers = buffers;
  shape.clipping = clipping;
  shape.stash_on_host = host_stash;
  shape.sweep_micro_batches = sweep;
  shape.gradient_slabs = slabs;
  shape.hidden_bytes_per_token = 8;
  return shape;
}

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
// How many ranks there are, whose schedule it is, and how many folds each has.
struct Ranks {
  int ranks = 1, rank = 0, folds = 1;
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
                                     Ranks{1, 0, 4}, Ranks{2, 1, 2}, Ranks{1, 0, 8})));

// Two sweeps of whole folds.
INSTANTIATE_TEST_SUITE_P(
    ShapesOfFolds, ScheduleProperties,
    testing::Combine(testing::Values(1, 4, -3, -12), testing::Values(false), testing::Values(2, 3),
                     testing::Bool(), testing::Bool(), testing::Values(5), testing::Values(3),
                     testing::Values(Updates(0, false), Updates(24, true)),
                     testing::Values(Frozen::kNothing, Frozen::kPrefix, Frozen::kParts),
                     testing::Values(Ranks{1, 0, 2}, Ranks{1, 0, 4}, Ranks{1, 0, 8})));

// Returns the order in which a tile's micro-batches are added up: "((0 1) (2 3))".
std::map<int, std::string> Sums(const PipelineShape& shape, int micro_batches) {
  PipelineState state;
  std::map<int, std::string> accumulators, partials, sums;
  const auto add = [&](std::optional<int> accumulator, bool first, int m) {
    std::string& sum = accumulators[accumulator.value()];
    sum = first ? std::to_string(m) : "(" + sum + " " + std::to_string(m) + ")";
  };
  const std::vector<int64_t> tokens(static_cast<size_t>(micro_batches), 16);
  for (const Op& op : BuildTrainingStep(shape, tokens, state).ops) {
    if (const auto* layer = op.as<LayerBackwardOp>()) {
      add(layer->accumulator, layer->first, layer->micro_batch);
    } else if (const auto* head = op.as<HeadOp>()) {
      add(head->accumulator, head->first, head->micro_batch);
    } else if (const auto* embed = op.as<EmbedBackwardOp>()) {
      add(embed->accumulator, embed->first && !shape.tied, embed->micro_batch);
    } else if (const auto* zero = op.as<ZeroGradientOp>()) {
      accumulators[zero->accumulator] = "zero";
    } else if (const auto* join = op.as<JoinGradientsOp>()) {
      std::string& sum = accumulators[join->accumulator];
      sum = "(" + sum + " " + accumulators[join->addend] + ")";
    } else if (const auto* store = op.as<StorePartialOp>()) {
      partials[store->tile] = accumulators[store->accumulator];
    } else if (const auto* load = op.as<LoadPartialOp>()) {
      accumulators[load->accumulator] = partials[load->tile];
    } else if (const auto* finish = op.as<FinishGradientOp>()) {
      sums[finish->tile] = accumulators[finish->accumulator];
    }
  }
  return sums;
}

TEST(ScheduleTest, FoldsAreJoinedAsATree) {
  PipelineShape shape = MakeShape({2}, false, 2, true, false, 8, 5);
  shape.folds = 4;
  for (const auto& [tile, sum] : Sums(shape, 4)) EXPECT_EQ(sum, "((0 1) (2 3))") << tile;
  for (const auto& [tile, sum] : Sums(shape, 6)) EXPECT_EQ(sum, "((0 (1 2)) (3 (4 5)))") << tile;
  shape.folds = 8;
  for (const int sweep : {8, 4}) {  // one sweep, and two
    shape.sweep_micro_batches = sweep;
    for (const auto& [tile, sum] : Sums(shape, 8)) {
      EXPECT_EQ(sum, "(((0 1) (2 3)) ((4 5) (6 7)))") << tile;
    }
  }
  // Some folds have no micro-batch.
  shape.sweep_micro_batches = 5;
  const std::map<int, std::string> few = Sums(shape, 5);
  shape.sweep_micro_batches = 3;
  EXPECT_EQ(Sums(shape, 5), few);
  shape = MakeShape({2}, true, 2, false, true, 4, 4);
  shape.folds = 4;
  EXPECT_EQ(Sums(shape, 4)[0], "(((0 0) (1 1)) ((2 2) (3 3)))")
      << "the head's, then the embedding's";
  EXPECT_EQ(Sums(shape, 4)[1], "((0 1) (2 3))");
}

// What ranks do together comes in the same order on each, whatever micro-batches they have: else
// they would wait for each other for ever.
TEST(ScheduleTest, RanksMeetInTheSameOrder) {
  for (const bool clipping : {false, true}) {
    std::vector<std::vector<std::string>> meetings;
    for (const int micro_batches : {0, 3, 5}) {
      PipelineShape shape = MakeShape({3, true}, true, 2, clipping, micro_batches == 3, 5, 8);
      shape.ranks = 3;
      shape.rank = static_cast<int>(meetings.size());
      shape.device_update_parts = 16 * shape.rank;
      PipelineState state;
      std::vector<std::string>& of = meetings.emplace_back();
      const std::vector<int64_t> tokens(static_cast<size_t>(micro_batches), 16);
      for (int step = 0; step < 3; ++step) {
        for (const Schedule& schedule :
             {BuildTrainingStep(shape, tokens, state), BuildEvaluation(shape, tokens, state)}) {
          for (const Op& op : schedule.ops) {
            const auto* gather = op.as<GatherWeightsOp>();
            const auto* reduce = op.as<ReduceGradientOp>();
            if (gather == nullptr && reduce == nullptr && !op.is<ShareResultsOp>()) continue;
            of.push_back(op.name());
            of.back() += std::to_string(gather != nullptr   ? gather->tile
                                        : reduce != nullptr ? reduce->tile
                                                            : 0);
          }
        }
      }
    }
    EXPECT_EQ(meetings[0], meetings[1]);
    EXPECT_EQ(meetings[0], meetings[2]);
  }
}

TEST(ScheduleTest, ShardsAreEvenAndWhole) {
  PipelineShape shape = MakeShape({1}, false, 2, true, false, 1, 5);
  shape.tile_elements = {1'000'000, 1000, 100};
  shape.ranks = 7;
  for (int tile = 0; tile < 3; ++tile) {
    int64_t end = 0;
    for (shape.rank = 0; shape.rank < 7; ++shape.rank) {
      EXPECT_EQ(shape.shard_begin(tile), end);
      EXPECT_EQ(end % kUpdateAlignment, 0);
      EXPECT_NEAR(static_cast<double>(shape.shard_elements(tile)),
                  static_cast<double>(shape.tile_elements[tile]) / 7, 2.0 * kUpdateAlignment);
      end = shape.shard_end(tile);
    }
    EXPECT_EQ(end, shape.tile_elements[tile]);
  }
}

TEST(ScheduleTest, DeviceSlotsDoNotDependOnDepthWithTheStashOnTheHost) {
  EXPECT_EQ(MakeShape({4}, false, 2, true, true, 3, 6).hidden_slots(),
            MakeShape({48}, false, 2, true, true, 3, 50).hidden_slots());
}

TEST(ScheduleTest, TheStashHoldsOnlyWhatBackwardReads) {
  PipelineShape shape = MakeShape({8}, false, 2, true, false, 3, 10);
  EXPECT_EQ(shape.hidden_slots(), 9 * 3);
  shape.embedding_trained = false;
  shape.stateless_elements = {1000, 1000, 1000, 1000, 1000, 1000, 0, 0, 0, 0};
  EXPECT_EQ(shape.lowest_stage(), 5);
  EXPECT_EQ(shape.hidden_slots(), 4 * 3);
  shape.stash_on_host = true;
  PipelineState state;
  std::set<int> stashed;
  for (const Op& op : BuildTrainingStep(shape, {16, 16, 16}, state).ops) {
    if (const auto* store = op.as<StoreStashOp>()) stashed.insert(store->stage);
  }
  EXPECT_EQ(stashed, (std::set<int>{5, 6, 7}));
}

TEST(ScheduleTest, SlabsTakeTurnsWithoutClipping) {
  PipelineShape shape = MakeShape({6}, false, 2, false, false, 1, 3);
  shape.slab_per_tile = false;
  PipelineState state;
  std::set<int> slabs;
  for (const Op& op : BuildTrainingStep(shape, {16}, state).ops) {
    if (const auto* update = op.as<UpdateTileOp>()) slabs.insert(update->slab);
  }
  EXPECT_EQ(slabs, (std::set<int>{0, 1, 2}));
}

TEST(ScheduleTest, WithClippingUpdatesRunInTheOrderOfTheNextLoadsAfterTheNormIsKnown) {
  const PipelineShape shape = MakeShape({3}, false, 2, true, false, 1, 5);
  PipelineState state;
  std::vector<int> updates, loads;
  std::set<int> normed;
  bool clipped = false;
  for (const Op& op : BuildTrainingStep(shape, {16}, state).ops) {
    if (const auto* store = op.as<StoreNormOp>()) normed.insert(store->tile);
    if (op.is<ClipOp>()) {
      clipped = true;
      EXPECT_EQ(normed.size(), 5u);
    }
    const auto* update = op.as<UpdateTileOp>();
    if (update == nullptr) continue;
    EXPECT_TRUE(clipped);
    updates.push_back(update->tile);
  }
  for (const Op& op : BuildTrainingStep(shape, {16}, state).ops) {
    const auto* load = op.as<LoadTileOp>();
    if (load != nullptr && loads.size() < 5) loads.push_back(load->tile);
  }
  EXPECT_EQ(updates, (std::vector<int>{1, 0, 2, 3, 4}));
  EXPECT_EQ(loads, updates);
}

TEST(ScheduleTest,
     RowsThatTheNextBatchLooksUpAreUpdatedAmidTheFirstTileAndTheRestOfTheEmbeddingLast) {
  for (const bool tied : {false, true}) {
    PipelineShape shape = MakeShape({3}, tied, 2, true, false, 1, 5);
    shape.embedding_from_host = true;
    shape.row_elements = 100;
    PipelineState state;
    std::vector<std::pair<std::string, int>> updates;
    int64_t embedding_bytes = 0;
    for (const Op& op : BuildTrainingStep(shape, {16}, state).ops) {
      if (op.lane != Lane::kUpdate || op.is<ClipOp>()) continue;
      const auto* whole = op.as<UpdateTileOp>();
      const std::pair<std::string, int> update(op.name(), whole != nullptr ? whole->tile : 0);
      if (update.second == 0) embedding_bytes += op.bytes;
      // Parts of a tile count as one.
      if (updates.empty() || updates.back() != update) updates.push_back(update);
    }
    std::vector<std::pair<std::string, int>> expected = {
        {"update tile", 1}, {"update rows", 0}, {"update tile", 1}, {"update tile", 2},
        {"update tile", 3}, {"update tile", 4}, {"update tile", 0}};
    if (tied) expected.erase(expected.begin() + 5);
    EXPECT_EQ(updates, expected);
    EXPECT_EQ(embedding_bytes, 28 * 1000);
    // The next step's embedding waits for the rows alone, if its batch was known in time.
    for (const bool in_time : {true, false}) {
      state.rows_first = in_time;
      for (const Op& op : BuildTrainingStep(shape, {16}, state).ops) {
        if (!op.is<EmbedForwardOp>()) continue;
        ASSERT_EQ(op.reads.size(), 2u);
        EXPECT_EQ(op.reads[1].kind,
                  in_time ? ResourceKind::kEmbeddingRows : ResourceKind::kTileWeights);
        EXPECT_EQ(op.h2d_bytes, 16 * 8);
      }
    }
  }
}

TEST(ScheduleTest, BothSidesUpdateTheirPartOfEveryTile) {
  PipelineShape shape = MakeShape({3}, false, 2, true, false, 1, 5);
  shape.tile_elements.assign(5, 12'800);
  shape.device_update_parts = 16;  // a quarter
  shape.first_tile_device_parts = 32;
  shape.device_piece_elements = 1280;
  PipelineState state;
  std::map<int, int64_t> elements, host_bytes;
  int64_t down = 0, up = 0;
  for (const Op& op : BuildTrainingStep(shape, {16}, state).ops) {
    if (const auto* update = op.as<UpdateTileOp>()) host_bytes[update->tile] = op.bytes;
    const auto* piece = op.as<DeviceUpdateOp>();
    if (piece == nullptr) continue;
    elements[piece->tile] += piece->end - piece->begin;
    down += op.h2d_bytes;
    up += op.d2h_bytes;
  }
  // Of tile 1 its own part, whose gradient is on the device still.
  EXPECT_EQ(elements, (std::map<int, int64_t>{{1, 6400}, {2, 3200}, {3, 3200}, {4, 3200}}));
  EXPECT_EQ(host_bytes[0], 28 * 12'800);
  EXPECT_EQ(host_bytes[3], 28 * 9600);
  EXPECT_EQ(host_bytes[1], 28 * 6400);
  EXPECT_EQ(down, 6400 * 12 + 3 * 3200 * (12 + 4));
  EXPECT_EQ(up, (6400 + 3 * 3200) * 12);
}

TEST(ScheduleTest, BackwardsInputsAreLoadedAheadOfTheTileThatWaitsForTheirLayersBuffer) {
  const PipelineShape shape = MakeShape({4}, true, 2, false, true, 6, 4);
  PipelineState state;
  const Schedule schedule = BuildTrainingStep(shape, std::vector<int64_t>(6, 16), state);
  bool backward = false;
  int inputs_of_layer_2 = 0;
  for (const Op& op : schedule.ops) {
    backward |= op.is<HeadOp>();
    const auto* stash = op.as<LoadStashOp>();
    if (stash != nullptr && stash->stage == 2) ++inputs_of_layer_2;
    // Layer 1's tile takes layer 3's buffer while layer 2 computes.
    const auto* load = op.as<LoadTileOp>();
    if (backward && load != nullptr && load->tile == 2) break;
  }
  EXPECT_EQ(inputs_of_layer_2, 6);
}

TEST(ScheduleTest, CheckpointTakesEveryTileOnce) {
  for (const bool clipping : {false, true}) {
    const PipelineShape shape = MakeShape({3}, false, 2, clipping, false, 1, 5);
    std::set<int> tiles;
    for (const Op& op : BuildCheckpoint(shape).ops) {
      tiles.insert(op.as<SaveTileOp>()->tile);
    }
    EXPECT_EQ(tiles, (std::set<int>{0, 1, 2, 3, 4}));
  }
}

}  // namespace
}  // namespace megatrain

// What comes before what in a schedule, for shapes that show one thing each: the order of sums, of
// what ranks do together, of loads, stores and updates.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/pipeline/schedule/schedule.h"
#include "tests/engine/pipeline/schedule/schedule_replay.h"

namespace megatrain {
namespace {

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

TEST(ScheduleOrderTest, FoldsAreJoinedAsATree) {
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

// Returns the tile that ranks meet for in this operation, -1 for results, nullopt if they do not.
std::optional<int> MeetsFor(const Op& op) {
  if (const auto* await = op.as<AwaitUpdatesOp>()) return await->tile;
  if (const auto* gather = op.as<GatherWeightsOp>()) return gather->tile;
  if (const auto* reduce = op.as<ReduceGradientOp>()) return reduce->tile;
  if (op.is<ShareResultsOp>()) return -1;
  return std::nullopt;
}

// What ranks do together comes in the same order on each, whatever micro-batches they have: else
// they would wait for each other for ever.
TEST(ScheduleOrderTest, RanksMeetInTheSameOrder) {
  for (const auto& [clipping, whole_loads] : std::vector<std::pair<bool, bool>>{
           {false, false}, {true, false}, {false, true}, {true, true}}) {
    std::vector<std::vector<std::string>> meetings;
    for (const int micro_batches : {0, 3, 5}) {
      PipelineShape shape = MakeShape({3, true}, true, 2, clipping, micro_batches == 3, 5, 8);
      shape.ranks = 3;
      shape.rank = static_cast<int>(meetings.size());
      shape.whole_loads = whole_loads;
      shape.device_update_parts = 16 * shape.rank;
      PipelineState state;
      std::vector<std::string>& of = meetings.emplace_back();
      const std::vector<int64_t> tokens(static_cast<size_t>(micro_batches), 16);
      for (int step = 0; step < 3; ++step) {
        for (const Schedule& schedule :
             {BuildTrainingStep(shape, tokens, state), BuildEvaluation(shape, tokens, state)}) {
          for (const Op& op : schedule.ops) {
            if (const std::optional<int> tile = MeetsFor(op); tile.has_value()) {
              of.push_back(op.name() + std::to_string(*tile));
            }
          }
        }
      }
    }
    EXPECT_EQ(meetings[0], meetings[1]);
    EXPECT_EQ(meetings[0], meetings[2]);
  }
}

TEST(ScheduleOrderTest, ShardsAreEvenAndWhole) {
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

TEST(ScheduleOrderTest, DeviceSlotsDoNotDependOnDepthWithTheStashOnTheHost) {
  EXPECT_EQ(MakeShape({4}, false, 2, true, true, 3, 6).hidden_slots(), 3 + 2);
  EXPECT_EQ(MakeShape({48}, false, 2, true, true, 3, 50).hidden_slots(), 3 + 2);
}

TEST(ScheduleOrderTest, TheStashHoldsOnlyWhatBackwardReads) {
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

TEST(ScheduleOrderTest, SlabsTakeTurnsWithoutClipping) {
  PipelineShape shape = MakeShape({6}, false, 2, false, false, 1, 3);
  shape.slab_per_tile = false;
  PipelineState state;
  std::set<int> slabs;
  for (const Op& op : BuildTrainingStep(shape, {16}, state).ops) {
    if (const auto* update = op.as<UpdateTileOp>()) slabs.insert(update->slab);
  }
  EXPECT_EQ(slabs, (std::set<int>{0, 1, 2}));
}

TEST(ScheduleOrderTest, WithClippingUpdatesRunInTheOrderOfTheNextLoadsAfterTheNormIsKnown) {
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

TEST(ScheduleOrderTest,
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

TEST(ScheduleOrderTest, BothSidesUpdateTheirPartOfEveryTile) {
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

TEST(ScheduleOrderTest, BackwardsInputsAreLoadedAheadOfTheTileThatWaitsForTheirLayersBuffer) {
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

TEST(ScheduleOrderTest, CheckpointTakesEveryTileOnce) {
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

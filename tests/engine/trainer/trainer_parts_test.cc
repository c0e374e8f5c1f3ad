// The trainer does this beside steps: it chooses the coefficient of the routers' loss, and makes
// one save of those of all ranks of a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "engine/trainer/trainer.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

TEST(RouterAuxiliaryLossTest, TheJobsCoefficientComesBeforeTheModels) {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 8,
                                         .layers = 3,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_dim = 8,
                                         .intermediate = 4,
                                         .max_positions = 16});
  JobSpec spec;
  EXPECT_EQ(RouterAuxiliaryLoss(spec, model), 0);
  model.layers[0].experts.auxiliary_loss = 0.25;
  model.layers[1].experts.auxiliary_loss = 0.5;
  EXPECT_EQ(RouterAuxiliaryLoss(spec, model), 0.5) << "the largest of its layers";
  spec.training.router_auxiliary_loss = 0.125;
  EXPECT_EQ(RouterAuxiliaryLoss(spec, model), 0.125);
  spec.training.router_auxiliary_loss = 0;
  EXPECT_EQ(RouterAuxiliaryLoss(spec, model), 0) << "the job turns it off";
}

TEST(SaveGateTest, RanksSaveEachTileOnce) {
  std::vector<int> taken;  // by one rank at a time
  int finished = 0;
  SaveGate gate(
      2, {[&](int index, const ProcessTile&) { taken.push_back(index); }, [&] { ++finished; }});
  const SaveCalls first = gate.ForRank(), second = gate.ForRank();
  const ProcessTile tile;
  const auto save = [&](const SaveCalls& calls) {
    for (const int index : {5, 6}) calls.take_tile(index, tile);
    calls.finish();
  };
  std::thread other([&] { save(second); });
  save(first);
  other.join();
  EXPECT_THAT(taken, ElementsAre(5, 6));
  EXPECT_EQ(finished, 1);
  EXPECT_TRUE(gate.status().ok());
}

TEST(SaveGateTest, AnAbortFreesThoseThatWait) {
  int calls = 0;
  SaveGate gate(2, {[&](int, const ProcessTile&) { ++calls; }, [&] { ++calls; }});
  const SaveCalls first = gate.ForRank(), second = gate.ForRank();
  std::thread waiting([&] { first.take_tile(7, {}); });
  const absl::Status cause = absl::InternalError("a step has failed");
  gate.Abort(cause);
  gate.Abort(absl::CancelledError("another one too"));
  waiting.join();
  second.take_tile(7, {});
  first.finish();
  second.finish();
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(gate.status(), cause) << "nothing was finished";
}

// A tile does not change while it is saved, and what is finished is saved.
TEST(SaveGateTest, AnAbortDuringACallWaitsForItsEnd) {
  for (const bool finishes : {false, true}) {
    std::promise<void> calling, aborted;
    std::atomic<bool> called{false};
    const auto call = [&] {
      calling.set_value();
      aborted.get_future().wait();
      called = true;
    };
    SaveGate gate(2, {[&](int, const ProcessTile&) { call(); }, call});
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, calls = gate.ForRank()] {
        finishes ? calls.finish() : calls.take_tile(7, {});
        EXPECT_TRUE(called);
      });
    }
    calling.get_future().wait();
    gate.Abort(absl::InternalError("a step has failed"));
    aborted.set_value();
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(gate.status().ok(), finishes);
  }
}

}  // namespace
}  // namespace megatrain

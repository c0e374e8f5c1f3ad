// The trainer does this beside steps: it chooses the coefficient of the routers' loss, and makes
// one save of those of all ranks of a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(SaveGateTest, RanksSaveEachTileOnceAndAnAbortFreesThoseThatWait) {
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

  std::thread waiting([&] { first.take_tile(7, tile); });
  gate.Abort();
  waiting.join();
  save(second);
  EXPECT_THAT(taken, ElementsAre(5, 6)) << "a step has failed";
  EXPECT_EQ(finished, 1);
}

}  // namespace
}  // namespace megatrain

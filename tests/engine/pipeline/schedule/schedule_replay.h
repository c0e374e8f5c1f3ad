// Replays schedules in the order given, against a model of what each buffer holds.
#ifndef MEGATRAIN_TESTS_ENGINE_PIPELINE_SCHEDULE_SCHEDULE_REPLAY_H_
#define MEGATRAIN_TESTS_ENGINE_PIPELINE_SCHEDULE_SCHEDULE_REPLAY_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {

// Layers of one kind: dense, or with experts in two tiles, or those and a dense unit.
struct Layers {
  int count = 0;
  bool experts = false, joins = false;
};

// `sweep`: micro-batches of one at most; `slabs`: of gradients.
PipelineShape MakeShape(Layers layers, bool tied, int buffers, bool clipping, bool host_stash,
                        int sweep, int slabs);

// Fails the test when an operation does not find in what it reads what it needs, or when a step
// does not do all that a step is.
class ScheduleReplay {
 public:
  explicit ScheduleReplay(const PipelineShape& shape) : shape_(shape) {}

  // The next step, or an evaluation in between.
  void Step(const Schedule& schedule, int micro_batches, bool training = true);

 private:
  struct Weights {
    int tile = -1, version = 0, device_version = 0;
    bool operator==(const Weights&) const = default;
  };
  // How often each tile was loaded, stored and updated in a step.
  struct Counts {
    std::map<int, int> loads, stores, updates, device_updates, reductions;
    std::map<int, int> backwards;  // by stage
  };

  void Do(const LoadTileOp& op);
  void Do(const EmbedForwardOp& op);
  void Do(const StoreStashOp& op);
  void Do(const LoadStashOp& op);
  void Do(const LayerForwardOp& op);
  void Do(const RouteOp& op);
  void Do(const ExpertsForwardOp& op);
  void Do(const ExpertsBackwardOp& op);
  void Do(const RouterBackwardOp& op);
  void Do(const JoinForwardOp& op);
  void Do(const JoinBackwardOp& op);
  void Do(const HeadOp& op);
  void Do(const HeadLossOp& op);
  void Do(const HeadLogitsOp& op);
  void Do(const LayerBackwardOp& op);
  void Do(const StoreHiddenGradientOp& op);
  void Do(const LoadHiddenGradientOp& op);
  void Do(const EmbedBackwardOp& op);
  void Do(const ZeroGradientOp& op);
  void Do(const JoinGradientsOp& op);
  void Do(const AwaitUpdatesOp& op);
  void Do(const GatherWeightsOp& op);
  void Do(const ReduceGradientOp& op);
  void Do(const StorePartialOp& op);
  void Do(const StoreGradientOp& op);
  void Do(const LoadPartialOp& op);
  void Do(const UpdateTileOp& op);
  void Do(const UpdateRowsOp& op);
  void Do(const BeginDeviceUpdateOp& op);
  void Do(const DeviceUpdateOp& op);
  void Do(const EndDeviceUpdateOp& op);
  Weights Version(int tile) { return {tile, version_[tile], device_version_[tile]}; }
  std::string Hidden(int boundary, int micro_batch) const {
    return std::to_string(step_) + "/" + std::to_string(boundary) + "/" +
           std::to_string(micro_batch);
  }
  // The experts' tiles of a stage up to `tile`.
  std::vector<int> ExpertTiles(int stage, int tile) const {
    std::vector<int> tiles;
    for (int i = shape_.stages[stage].tile + 1; i <= tile; ++i) tiles.push_back(i);
    return tiles;
  }
  void CheckWeights(int weight_buffer, int tile) {
    EXPECT_TRUE(buffer_[weight_buffer] == Version(tile));
  }
  // Parts come in any order, each once.
  template <typename Op>
  void LoadPart(const Op& op, int b) {
    EXPECT_FALSE(buffer_[b] == Version(op.tile)) << "loaded though resident";
    if (loading_[b] != op.tile) loaded_[b] = 0;
    loading_[b] = op.tile;
    AddLoaded(op.end - op.begin, op.tile, b);
  }
  void AddLoaded(int64_t elements, int tile, int b) {
    loaded_[b] += elements;
    EXPECT_LE(loaded_[b], shape_.tile_elements[tile]);
    if (loaded_[b] < shape_.tile_elements[tile]) return;
    loading_[b] = -1;
    buffer_[b] = Version(tile);
  }
  template <typename Op>
  void Accumulate(const Op& op, int accumulator, int tile) {
    if (op.first) accumulator_[accumulator] = {tile, {}};
    EXPECT_EQ(accumulator_[accumulator].first, tile);
    accumulator_[accumulator].second.push_back(op.micro_batch);
  }
  template <typename Op>
  void AccumulateIfTrained(const Op& op, int tile) {
    EXPECT_EQ(op.accumulator.has_value(), shape_.state_elements(tile) > 0);
    if (op.accumulator) Accumulate(op, *op.accumulator, tile);
  }

  const PipelineShape shape_;
  Counts counts_;
  int step_ = 0;
  int micro_batches_ = 0;  // of the present schedule
  int rows_version_ = 0;
  std::map<int, int> version_, device_version_;
  std::map<int, Weights> awaited_;  // tiles that all ranks have updated and none may update yet
  std::map<int, int64_t> device_end_, host_end_, loaded_;
  std::map<int, Weights> buffer_;
  std::map<int, int> loading_;  // the tile that is loaded into a buffer bit by bit
  std::map<int, std::string> hidden_, gradient_, stash_, kept_;
  // What was routed, and the experts' tiles it went through. Behind a join the tiles begin anew.
  std::map<int, std::pair<std::string, std::vector<int>>> routed_;
  std::map<int, std::pair<int, std::vector<int>>> accumulator_, slab_;
  std::map<int, int64_t> partial_end_;  // of an accumulator, of the sum over earlier sweeps
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_PIPELINE_SCHEDULE_SCHEDULE_REPLAY_H_

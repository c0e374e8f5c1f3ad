// StepBuilder builds the schedule of a step or a forward pass, for BuildTrainingStep,
// BuildEvaluation and BuildPrediction (schedule.h). The order of a step is in step_builder.cc, its
// forward pass in step_forward.cc, its backward pass and gradients in step_backward.cc, and its
// updates in update_builder.h.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_STEP_BUILDER_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_STEP_BUILDER_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/pipeline/schedule/schedule.h"
#include "engine/pipeline/schedule/update_builder.h"
#include "engine/pipeline/schedule/weight_uses.h"

namespace megatrain {

// Builds one schedule. REQUIRES: one of Train, Evaluate and Predict is called, and only once.
class StepBuilder {
 public:
  // All arguments must outlive this. `state` is changed as BuildTrainingStep says.
  StepBuilder(const PipelineShape& shape, const std::vector<int64_t>& micro_batch_tokens,
              PipelineState& state, int step_micro_batches = 0);

  // Return the schedule of a training step, of an evaluation, or of a pass that gives logits.
  Schedule Train();
  Schedule Evaluate();
  Schedule Predict(CacheUse cache);

 private:
  bool last_sweep() const { return sweep_ == sweeps_ - 1; }
  int64_t Tokens(int sweep_index) const { return tokens_[first_ + sweep_index]; }
  // Returns the micro-batch's part of the work of a whole one (StepWork).
  double Part(int sweep_index) const { return PartOf(tokens_[first_ + sweep_index]); }
  double PartOf(int64_t tokens) const {
    return static_cast<double>(tokens) / static_cast<double>(shape_.work.micro_batch_tokens);
  }

  Op& Add(Lane lane, const AnyOp& what) { return schedule_.ops.emplace_back(what, lane, slot_); }
  int MicroBatch(int sweep_index) const { return first_ + sweep_index; }

  // --- Weights: loaded weight_buffers - 1 uses ahead.

  void ListUses(bool backward);
  // Returns the buffer of the present use's tile, and lists its load if it is not there yet.
  int Use() { return Buffer(0); }
  // Lists the loads that may run while the present use computes.
  void Prefetch();
  void EndUse() { uses_.End(); }
  int Buffer(int ahead);
  void Load(const WeightUses::Place& place, int part, int64_t begin, int64_t end);
  // Lists what brings the other ranks' elements of the tile.
  void Gather(const WeightUses::Place& place);
  // Lists the load of all ranks' elements from the host, and before it what waits for their
  // updates.
  void LoadAllShards(const WeightUses::Place& place);
  void AwaitUpdates(int tile);
  // Adds the weights that this rank updates to what the operation reads.
  void ReadOwnWeights(int tile, Op& op) const;

  // --- Hidden states.

  // Returns the slot of micro-batch i's hidden states at a boundary (PipelineShape::hidden_slots).
  // In a ring each boundary begins two slots below the boundary before it.
  int ForwardSlot(int boundary, int i) const {
    if (!shape_.stash_on_host) {
      const int kept = boundary - shape_.lowest_stage();
      return (kept >= 0 ? kept : -kept % 2) * shape_.sweep_micro_batches + i;
    }
    const int ring = shape_.hidden_slots();
    return ((i - 2 * boundary) % ring + ring) % ring;
  }

  // Numbers the pairs (stage, micro-batch) from the last stage back. A smaller last sweep has room
  // for at least as many stages as a whole one.
  std::optional<KeptActivations> Kept(int stage, int i) const {
    const int pair = keeping_behind_[static_cast<size_t>(stage)] * sweep_size_ + i;
    if (pair >= shape_.kept) return std::nullopt;
    return KeptActivations{
        pair, pair < shape_.kept_everything ? KeepLevel::kEverything : KeepLevel::kCheapRecomputed};
  }

  // Returns the slot from which backward reads an input. The head reads its inputs first, then the
  // stages read theirs from the last to the first. BackwardNumber counts the inputs in this order.
  // In a ring they take the slots in turn, beginning with those where forward left the head's.
  int BackwardSlot(int stage, int i) const {
    if (!shape_.stash_on_host) return ForwardSlot(stage, i);
    return (ForwardSlot(shape_.stage_count(), 0) + BackwardNumber(stage, i)) %
           shape_.hidden_slots();
  }
  int BackwardNumber(int boundary, int i) const {
    return (shape_.stage_count() - boundary) * sweep_size_ + i;
  }

  // --- The step.

  void Upload();
  void BeginSweep(int sweep);
  void Forward(bool train);
  void EmbedForward(bool train);
  void LayerForward(int stage, bool train);
  void ExpertsForward(int stage, bool train);
  void ExpertTileForward(int stage, int tile, bool train, bool backward);
  void JoinForward(int stage, bool train);
  void Route(int stage, int buffer, bool backward, bool totals);
  void StoreStash(int stage, int i);
  void Head();
  void HeadLoss();
  void HeadLogits();
  void StoreLosses();
  void LayerBackward(int stage);
  void ExpertsBackward(int stage);
  void ExpertTileBackward(int stage, int tile);
  void JoinBackward(int stage);
  void LoadStashBehind(int number);
  void EmbedBackward();
  void EmbedBackward(int m, int main, Resource hidden_gradient);
  void PutByEmbedBackward(int m, int accumulator);

  // --- Gradients.

  std::optional<int> TakeAccumulator(int tile);
  void LoadPartial(int tile, std::optional<int> accumulator, int part, int parts);
  std::optional<int> BeginGradient(int tile);
  // The accumulator to which a micro-batch's gradient is added, and whether it is the first there.
  struct FoldPlace {
    std::optional<int> accumulator;
    bool first;
  };
  // Returns that of micro-batch m, where `main` is to hold the sum of all.
  FoldPlace PlaceOf(std::optional<int> main, int m) const;
  // List what zeroes folds without micro-batches and joins folds: before the first micro-batch, and
  // after micro-batch m.
  void BeginFolds(int tile, std::optional<int> main) { CloseFolds(tile, main, first_fold_); }
  void EndMicroBatch(int tile, std::optional<int> main, int m);
  void CloseFolds(int tile, std::optional<int> main, int fold);
  void JoinFold(int tile, int main, int fold);
  void Join(int tile, int accumulator, int addend);
  void JoinTiedFolds(int main);
  LayerWork BackwardWork(int tile, const LayerWork& whole, const LayerWork& weights) const;
  void EndGradient(int tile, std::optional<int> taken);
  // FinishReduced lists the end of the gradient that EndGradient has reduced before, if there is
  // one. It comes after the next tile's backward pass, so that the compute lane does not wait for
  // the other ranks.
  void FinishReduced();
  void FinishGradient(int tile, int accumulator);

  const PipelineShape& shape_;
  const std::vector<int64_t>& tokens_;
  const int micro_batches_;
  const int sweeps_;
  std::vector<int> fold_ends_;  // by fold: the micro-batch after its last one
  PipelineState& state_;
  const int slot_;
  Schedule schedule_;
  WeightUses uses_;
  UpdateBuilder updates_;
  std::vector<int> keeping_behind_;  // by stage: the stages after it that may keep activations
  CacheUse cache_ = CacheUse::kNone;
  int sweep_ = 0;
  int first_ = 0;                      // the sweep's first micro-batch
  int sweep_size_ = 0;                 // micro-batches in it
  int first_fold_ = 0, end_fold_ = 1;  // the sweep's folds: [first, end)
  int next_input_ = 0;                 // the BackwardNumber of the next input to load
  std::optional<int> accumulator_of_head_;
  std::optional<std::pair<int, int>> reduced_;  // the tile and the accumulator of FinishReduced
  int accumulator_of_first_ = -1;               // tile 1's
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_STEP_BUILDER_H_

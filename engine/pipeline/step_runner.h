// StepRunner carries out a schedule's operations: it calls kernels and makes copies on the buffers
// of a rank. It also holds the batches and results of the steps in flight.
//
// Thread safety: the executor's lanes call Run, and the trainer's thread calls everything else
// unless a comment allows other threads. A StepState belongs to the trainer until it submits the
// schedule, and again after it has waited for the ticket. In between it belongs to the lanes, which
// the schedule's resources keep in order.
#ifndef MEGATRAIN_ENGINE_PIPELINE_STEP_RUNNER_H_
#define MEGATRAIN_ENGINE_PIPELINE_STEP_RUNNER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/base/mutex.h"
#include "engine/comm/communicator.h"
#include "engine/data/sequences/batch.h"
#include "engine/device/device.h"
#include "engine/memory/memory_nodes.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_updater.h"
#include "engine/pipeline/buffers.h"
#include "engine/pipeline/executor.h"
#include "engine/pipeline/router_totals.h"

namespace megatrain {

// Tokens [begin, end) of a micro-batch.
struct TokenRange {
  int64_t begin = 0, end = 0;
};

// Requests the logits of some tokens of every micro-batch, with the model's softcap.
struct LogitsRequest {
  std::vector<TokenRange> tokens;  // by micro-batch; those beyond the list give none
  // The result, [tokens of all ranges, vocabulary]. The caller gives it this size.
  std::vector<float> logits;
};

// The functions of a save, which are called on the io lane of each rank. After an error of a step
// some calls are not made. A call means that this rank's part of a tile is ready; where a process
// has several ranks, SaveGate (engine/trainer/save_gate.h) makes one call of theirs.
struct SaveCalls {
  // Takes tile `index` as it is after the save's step. Called once for each tile, in any order. The
  // rank's part of the tile does not change during the call.
  std::function<void(int index, const ProcessTile& tile)> take_tile;
  std::function<void()> finish;  // called once, after all tiles were taken
};

// Sums of the rewards of pairs of answers. The reward of an answer is beta * (log p - log
// p_reference), as in Rewards (step_record.h).
struct RewardSums {
  int64_t pairs = 0;
  double chosen = 0, rejected = 0;
  int64_t preferred = 0;  // pairs whose chosen answer has the higher reward
};

// Sums over the predictions or pairs of a micro-batch.
struct MicroBatchLoss {
  double loss = 0;
  RewardSums rewards;
};

// The data of a step in flight.
struct StepState {
  // Set before the schedule is submitted, except adamw.gradient_scale, which ClipOp sets.
  // PrepareBatch sets what follows from the batch and clears the rest. After it the caller sets
  // adamw, max_gradient_norm, logits and router_auxiliary_loss.
  int64_t step = 0;
  int64_t loss_terms = 0;  // Batch::loss_terms
  std::vector<int64_t> micro_batch_tokens;
  int step_micro_batches = 0;                         // of all ranks
  std::vector<int64_t> pairs;                         // by micro-batch, of a batch of pairs
  std::vector<std::vector<int32_t>> document_starts;  // by micro-batch
  std::vector<std::vector<std::pair<int32_t, int32_t>>> padding;  // Batch::padding
  bool caches = false;            // tokens have rows of the key-value cache
  bool attends_to_cache = false;  // and attend to what is there (Batch::attends_to_cache)
  AdamWStep adamw;
  double max_gradient_norm = 0;
  // HeadLogitsOp fills it. Null: this rank gives no logits. Must outlive the step.
  LogitsRequest* logits = nullptr;
  double router_auxiliary_loss = 0;  // its coefficient
  // The trained elements of tile 0 that the batch looks up, ascending. Empty unless the forward
  // pass reads the embedding's rows from host memory.
  std::vector<ElementRange> rows;
  // Set during the step.
  std::vector<ElementRange> updated_rows;            // the elements that UpdateRowsOp has updated
  RouterTotals router;                               // of a model with experts
  std::vector<std::vector<float>> router_gradients;  // RouterTotals', by micro-batch
  // Set by CollectLoss, CollectNorm and ShareResultsOp.
  double loss_sum = 0;
  double gradient_norm = 0;
  RewardSums rewards;
  bool shared_losses = false;          // loss_sum and rewards are those of all ranks
  std::vector<double> shared_squares;  // by tile, of all ranks; empty if they are not shared
};

// The objects that a runner works on. They must outlive it.
struct StepRunnerParts {
  const PipelineDimensions* dimensions = nullptr;
  Device* device = nullptr;
  AttentionChoice attention = AttentionChoice::kAuto;
  PreferenceObjective preference;  // of batches of pairs
  AdamWUpdater* updater = nullptr;
  const DeviceBuffers* device_buffers = nullptr;
  const HostBuffers* host_buffers = nullptr;
  const std::vector<ProcessTile>* tiles = nullptr;
  size_t part = 0;                          // the rank's own of each tile's parts
  const MemoryNodes* host_nodes = nullptr;  // the NUMA nodes of the tiles
  // With several ranks: for the lane collective, and for results on the lane update. Null for a
  // rank alone.
  Communicator* tile_communicator = nullptr;
  Communicator* value_communicator = nullptr;
};

// In all methods `slot` is a step slot, in [0, kStepSlots).
class StepRunner : public OpRunner {
 public:
  // REQUIRES: the device buffers are reserved. They may be reserved anew when no step is in flight.
  explicit StepRunner(const StepRunnerParts& parts)
      : p_(parts),
        different_attention_(LayersOfDifferentAttention(parts.dimensions->layout->model)),
        expert_offsets_(parts.device_buffers->routed.size(),
                        std::vector<int32_t>(MostExperts(parts.dimensions->layout->model) + 1)) {}

  // Copies a batch into the slot's host arrays and state, and makes document_bounds from its
  // document_starts. Announces its attention calls to the kernels, which may take long to prepare
  // for them, unless the batch attends to the cache. Returns InvalidArgument for a token id that
  // the model does not have (CheckTokenIds); the slot is then unchanged. REQUIRES: no schedule of
  // this slot is in flight; the batch is this rank's (PartOfBatch, or for logits the whole) and has
  // at most the plan's micro-batches, each with at most micro_batch_tokens.
  absl::Status PrepareBatch(int slot, const Batch& batch);
  StepState& state(int slot) { return states_[slot]; }
  // Asks the previous step to update the rows that this slot's batch looks up ahead of others.
  // Returns false, with no effect, if that step's UpdateRowsOp has begun. REQUIRES: the slot is
  // prepared for training.
  bool RequestRowsFirst(int slot);

  // Sets the functions that SaveTileOp and FinishCheckpointOp call. REQUIRES: no save is in flight.
  void set_save_calls(SaveCalls calls) { save_calls_ = std::move(calls); }

  // Returns Aborted, naming the step and where in the model, for a loss, norm or update that is not
  // finite, and otherwise the errors of the kernels, the copies and the communicators.
  absl::Status Run(const Op& op, Stream* stream) override;

  // Set loss_sum, rewards and gradient_norm of the slot's state from what StoreLossesOp and
  // StoreNormOp copied, and ShareResultsOp replaced. Frozen tensors do not count for the norm.
  // REQUIRES: these operations are done.
  void CollectLoss(int slot);
  void CollectNorm(int slot);

  // Returns the log-probabilities of the answers of each pair of this rank's batch, the chosen
  // answer's first. REQUIRES: as for CollectLoss, and the batch is one of pairs.
  std::vector<double> AnswerLogps(int slot) const;

  // Returns the number of the step that failed a check before it changed anything, or 0 if none
  // did. If one did, this rank's parts of the tiles hold the state after the step before it. May be
  // called from any thread.
  int64_t failed_unchanged_step() const { return failed_unchanged_step_.load(); }
  // Returns the error of the exchange of tiles, also that of an operation that was queued without
  // an error. On a GPU an operation that was aborted leaves undefined data and its stream goes on,
  // so call this before such data is used. Returns OK for a rank alone.
  absl::Status exchange_status() const {
    return p_.tile_communicator == nullptr ? absl::OkStatus() : p_.tile_communicator->status();
  }

 private:
  void FindRows(int slot);
  void PreparePairs(int slot, const Batch& batch);
  MicroBatchView View(int slot, int micro_batch) const;
  // `layer` and `tile` are the decoder layer and the one of its tiles whose weights are bound, if
  // any are.
  LayerContext Context(Stream* stream, int layer = 0, int tile = 0) const;
  LayerContext StageContext(Stream* stream, int stage) const;
  // Returns the context whose tile joins the stage's experts with a dense unit.
  LayerContext JoinContext(Stream* stream, int stage) const;
  LayerActivations Activations(int stage, const std::optional<KeptActivations>& kept) const;
  RoutedTokens Routed(int sweep_index) const;
  // Returns the place of an element of the tile in a weight buffer.
  void* BufferAt(int weight_buffer, int64_t element) const;
  // Returns the place that element 0 of the tile has if a slab holds the shard's elements.
  const void* SlabOfTile(int slab, int tile) const;
  const Tile& OwnPart(int tile) const { return (*p_.tiles)[static_cast<size_t>(tile)][p_.part]; }
  // Returns the finished gradient of the rank's shard of the tile.
  float* ShardGradient(int tile, int accumulator) const;
  // Returns the bounds of all ranks' parts of a tile, in units of `element_bytes`: of their shards
  // by shard_cut, of what they hold of the elements without state by stateless_cut.
  using CutOf = int64_t (PipelineShape::*)(int tile, int rank) const;
  std::vector<int64_t> Cuts(CutOf cut_of, int tile, int64_t element_bytes) const;
  // Carry out an operation: `what` is op.what, and `stream` is the lane's, null on host lanes.
  absl::Status Do(const UploadBatchOp& what, const Op& op, Stream* stream);
  absl::Status Do(const LoadTileOp& what, const Op& op, Stream* stream);
  absl::Status Do(const LoadStashOp& what, const Op& op, Stream* stream);
  absl::Status Do(const LoadPartialOp& what, const Op& op, Stream* stream);
  absl::Status Do(const LoadHiddenGradientOp& what, const Op& op, Stream* stream);
  absl::Status Do(const EmbedForwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const LayerForwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const RouteOp& what, const Op& op, Stream* stream);
  absl::Status Do(const ExpertsForwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const ExpertsBackwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const RouterBackwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const JoinForwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const JoinBackwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const HeadOp& what, const Op& op, Stream* stream);
  absl::Status Do(const HeadLossOp& what, const Op& op, Stream* stream);
  absl::Status Do(const HeadLogitsOp& what, const Op& op, Stream* stream);
  absl::Status Do(const LayerBackwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const EmbedBackwardOp& what, const Op& op, Stream* stream);
  absl::Status Do(const ZeroGradientOp& what, const Op& op, Stream* stream);
  absl::Status Do(const JoinGradientsOp& what, const Op& op, Stream* stream);
  absl::Status Do(const FinishGradientOp& what, const Op& op, Stream* stream);
  absl::Status Do(const AwaitUpdatesOp& what, const Op& op, Stream* stream);
  absl::Status Do(const GatherWeightsOp& what, const Op& op, Stream* stream);
  absl::Status Do(const ReduceGradientOp& what, const Op& op, Stream* stream);
  absl::Status Do(const StoreStashOp& what, const Op& op, Stream* stream);
  absl::Status Do(const StoreNormOp& what, const Op& op, Stream* stream);
  absl::Status Do(const StoreGradientOp& what, const Op& op, Stream* stream);
  absl::Status Do(const StorePartialOp& what, const Op& op, Stream* stream);
  absl::Status Do(const StoreHiddenGradientOp& what, const Op& op, Stream* stream);
  absl::Status Do(const StoreLossesOp& what, const Op& op, Stream* stream);
  absl::Status Do(const ShareResultsOp& what, const Op& op, Stream* stream);
  absl::Status Do(const CheckLossesOp& what, const Op& op, Stream* stream);
  absl::Status Do(const ClipOp& what, const Op& op, Stream* stream);
  absl::Status Do(const UpdateRowsOp& what, const Op& op, Stream* stream);
  absl::Status Do(const UpdateTileOp& what, const Op& op, Stream* stream);
  absl::Status Do(const CheckUpdatesOp& what, const Op& op, Stream* stream);
  absl::Status Do(const BeginDeviceUpdateOp& what, const Op& op, Stream* stream);
  absl::Status Do(const DeviceUpdateOp& what, const Op& op, Stream* stream);
  absl::Status Do(const EndDeviceUpdateOp& what, const Op& op, Stream* stream);
  absl::Status Do(const SaveTileOp& what, const Op& op, Stream* stream);
  absl::Status Do(const FinishCheckpointOp& what, const Op& op, Stream* stream);

  absl::Status CheckLosses(int slot);
  // Returns the squared norm of a tile's gradient, of all ranks once it is shared.
  double SquareOf(int slot, int tile) const;
  absl::Status CheckNorm(int slot, int tile) const;
  absl::Status CheckBeforeChanges(int slot);
  absl::Status UpdateOnHost(int slot, int tile, int slab, absl::Span<const ElementRange> ranges);
  absl::Status NotTrusted(int slot, int tile) const;
  absl::Status SumLosses(int slot, int micro_batch, Stream& stream);
  // Computes the results of the micro-batch's pairs, and if `weighted` its loss_weights.
  absl::Status ComparePairs(const Op& op, int micro_batch, int weight_buffer, int input_slot,
                            bool weighted, Stream& stream);
  // Returns the results of a micro-batch's pairs on the host.
  absl::Span<const PreferenceResult> ResultsOf(int slot, int micro_batch) const;
  // Returns the sums over a micro-batch.
  MicroBatchLoss LossOf(int slot, int micro_batch) const;
  static void AddLoss(const MicroBatchLoss& of, StepState& state);
  // Set the slot's results from what ShareResultsOp has gathered: the losses of all ranks, and for
  // each rank `of_rank` values, the last of which are its squared norms.
  void AddSharedLosses(int slot, absl::Span<const double> values);
  void AddSharedSquares(int slot, absl::Span<const double> values, size_t of_rank);
  absl::Status ZeroPadding(int tile, float* gradient, Stream& stream);
  void* StashData(int stage, int sweep_index) const;
  void* EmbeddingStashData(int micro_batch) const;

  const StepRunnerParts p_;
  const std::vector<int> different_attention_;  // LayersOfDifferentAttention
  std::array<StepState, kStepSlots> states_;
  // RoutedTokens::offsets, by micro-batch of the sweep; of the compute lane.
  std::vector<std::vector<int32_t>> expert_offsets_;
  SaveCalls save_calls_;
  std::atomic<int64_t> failed_unchanged_step_{0};

  Mutex rows_mutex_;
  // The rows that the batch after requested_step_ looks up.
  std::vector<ElementRange> requested_rows_ ABSL_GUARDED_BY(rows_mutex_);
  int64_t requested_step_ ABSL_GUARDED_BY(rows_mutex_) = -1;
  int64_t updating_step_ ABSL_GUARDED_BY(rows_mutex_) = -1;  // the last one to take rows
};

// Returns a name for messages, such as "embedding", "layer 3" or "layer 3, experts 0 to 7".
std::string TileName(const TileLayout& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_STEP_RUNNER_H_

// Carries out a schedule's operations on buffers: which kernel or copy on which memory. Holds what
// two steps in flight need to know of their batches and leave as results.
//
// Thread safety: Run is called from the executor's lanes. A step's state is written by the trainer
// before the schedule is submitted and read by it after the ticket is waited for; between, each
// field has one writing lane, ordered by the schedule's resources.
#ifndef MEGATRAIN_ENGINE_PIPELINE_STEP_RUNNER_H_
#define MEGATRAIN_ENGINE_PIPELINE_STEP_RUNNER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/base/mutex.h"
#include "engine/data/sequences/batch.h"
#include "engine/device/device.h"
#include "engine/memory/memory_nodes.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_updater.h"
#include "engine/pipeline/buffers.h"
#include "engine/pipeline/executor.h"

namespace megatrain {

// A request for logits during an evaluation: of micro-batch 0, tokens [first_token, its end).
struct LogitsRequest {
  int64_t first_token = 0;
  std::vector<float> logits;  // [tokens, vocabulary], filled
};

// What a save does with the model's state. Both are called on the io lane.
struct SaveCalls {
  // Takes tile `index` as it is after the save's step; it does not change during the call.
  std::function<void(int index, const Tile& tile)> take_tile;
  std::function<void()> finish;  // when all tiles were taken
};

struct StepState {
  // In.
  int64_t step = 0;
  int64_t predictions = 0;
  std::vector<int64_t> micro_batch_tokens;
  std::vector<std::vector<int32_t>> document_starts;  // by micro-batch
  AdamWStep adamw;
  double max_gradient_norm = 0;
  LogitsRequest* logits = nullptr;
  std::vector<ElementRange> rows;  // of tile 0's elements, what the batch looks up; ascending
  // Of the update.
  std::vector<ElementRange> updated_rows;  // by kUpdateRows
  // Out.
  double loss_sum = 0;
  double gradient_norm = 0;
};

// What the runner works on. All pointers outlive it.
struct StepRunnerParts {
  const PipelineDimensions* dimensions = nullptr;
  Device* device = nullptr;
  AttentionChoice attention = AttentionChoice::kAuto;
  AdamWUpdater* updater = nullptr;
  const DeviceBuffers* device_buffers = nullptr;
  const HostBuffers* host_buffers = nullptr;
  const std::vector<Tile>* tiles = nullptr;
  const MemoryNodes* host_nodes = nullptr;  // where tiles lie
};

class StepRunner : public OpRunner {
 public:
  explicit StepRunner(const StepRunnerParts& parts) : p_(parts) {}

  // Fills the slot's host arrays and state from a batch, and announces its attention calls, whose
  // kernels may take long to be made ready: a step ahead of them. All token ids come into the
  // engine here, and are checked (CheckTokenIds); after an error the slot is as it was. REQUIRES:
  // no schedule of this slot is in flight; the batch has at most the plan's micro-batches, none
  // with more than micro_batch_tokens.
  absl::Status PrepareBatch(int slot, const Batch& batch);
  StepState& state(int slot) { return states_[slot]; }
  // Has the step before the slot's update the rows of the slot's batch ahead of others; false if
  // its update has begun. REQUIRES: the slot is prepared for training.
  bool OfferRows(int slot);

  // Sets what kSaveTile and kFinishCheckpoint call. REQUIRES: no save is in flight.
  void set_save_calls(SaveCalls calls) { save_calls_ = std::move(calls); }

  absl::Status Run(const Op& op, Stream* stream) override;

  // Sums of losses and norms, copied by kStoreLosses and kStoreNorm.
  void CollectLoss(int slot);
  void CollectNorm(int slot);

 private:
  void FindRows(int slot);
  MicroBatchView View(int slot, int micro_batch) const;
  LayerContext Context(Stream* stream) const;
  void* BufferAt(const Op& op) const;  // of element op.begin of its tile
  absl::Status LoadTile(const Op& op, Stream& stream);
  absl::Status Copy(const Op& op, Stream& stream);
  absl::Status Upload(const Op& op, Stream& stream);
  absl::Status Compute(const Op& op, Stream& stream);
  absl::Status CheckLosses(const Op& op);
  absl::Status CheckNorm(const Op& op, int tile) const;
  absl::Status Clip(const Op& op);
  absl::Status UpdateRows(const Op& op);
  absl::Status UpdateTile(const Op& op);
  absl::Status UpdateOnHost(const Op& op, absl::Span<const ElementRange> ranges);
  absl::Status UpdateOnDevice(const Op& op, Stream& stream);
  absl::Status CheckUpdates(const Op& op) const;
  absl::Status NotTrusted(const Op& op, int tile) const;
  absl::Status TakeLogits(const Op& op, Stream& stream);
  absl::Status ZeroPadding(const Op& op, Stream& stream);
  void* StashData(const Op& op) const;
  void* EmbeddingStashData(const Op& op) const;

  const StepRunnerParts p_;
  std::array<StepState, kStepSlots> states_;
  SaveCalls save_calls_;

  Mutex rows_mutex_;
  // For the update of offered_step_: what the batch of the step after it looks up.
  std::vector<ElementRange> offered_rows_ ABSL_GUARDED_BY(rows_mutex_);
  int64_t offered_step_ ABSL_GUARDED_BY(rows_mutex_) = -1;
  int64_t updating_step_ ABSL_GUARDED_BY(rows_mutex_) = -1;  // the last one to take rows
};

// "embedding", "layer 3", "head": for messages.
std::string TileName(const TileLayout& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_STEP_RUNNER_H_

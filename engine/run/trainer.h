// Steps over a model whose state lies in host memory: submits schedules, collects records,
// evaluates, saves. Knows nothing of files, data sets or job control.
//
// Not thread safe but for Interrupt: one thread drives it.
#ifndef MEGATRAIN_ENGINE_RUN_TRAINER_H_
#define MEGATRAIN_ENGINE_RUN_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/data/sequences/batch.h"
#include "engine/device/device.h"
#include "engine/job/job_spec.h"
#include "engine/memory/host_pool.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_updater.h"
#include "engine/pipeline/buffers.h"
#include "engine/pipeline/executor.h"
#include "engine/pipeline/step_runner.h"
#include "engine/plan/memory_plan.h"
#include "engine/trace/step_record.h"

namespace megatrain {

class Trainer {
 public:
  // Takes from pool and device what the plan says. All arguments but `plan` must outlive the
  // trainer, as must the plan's layout. The optimizer's and batch's settings come from `spec`.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const JobSpec& spec,
                                                         const MemoryPlan& plan, Device* device,
                                                         AdamWUpdater* updater, HostPool* pool);
  // Waits for what runs.
  ~Trainer();

  // The model's state. Uninitialised until filled; may be read and changed while no step is in
  // flight.
  const std::vector<Tile>& tiles() const { return tiles_; }

  // Queues a training step. Two may be in flight: the next one's forward overlaps this one's
  // updates. InvalidArgument if the batch has a token that the model has not: nothing is queued.
  // REQUIRES: in_flight() < 2, steps in order.
  absl::Status Submit(const Batch& batch, double learning_rate);
  int in_flight() const { return static_cast<int>(pending_.size()); }
  // Takes back the step submitted last unless an operation of kind `final` has started; what it
  // computed is lost, and it may be submitted again once SettleWithdrawn has returned. A step that
  // has begun to change the state stays. REQUIRES: in_flight() > 0, no save of this step is in
  // flight.
  bool Withdraw(OpKind final);
  // Blocks until nothing runs of the steps taken back. REQUIRES: in_flight() == 0.
  absl::Status SettleWithdrawn();
  // Blocks until Collect would return at once (true) or `interrupted` holds (false), which is asked
  // at first and after every Interrupt; it must not call the trainer. REQUIRES: in_flight() > 0.
  bool AwaitStep(absl::FunctionRef<bool()> interrupted);
  // From any thread.
  void Interrupt() { executor_->Interrupt(); }
  // Waits for the oldest step, its updates included; Aborted (naming step and tile) if it met a
  // non-finite value. The record lacks what spans steps or files: total_tokens, eval_loss, time.
  // REQUIRES: in_flight() > 0.
  absl::StatusOr<StepRecord> Collect();

  // Sum of the losses of the batch's predictions. REQUIRES: in_flight() == 0.
  absl::StatusOr<double> EvaluateLossSum(const Batch& batch);
  // Logits of micro-batch 0 from `first_token` on, [tokens, vocabulary]. REQUIRES: in_flight() ==
  // 0.
  absl::StatusOr<std::vector<float>> Logits(const Batch& batch, int64_t first_token);
  // The last step's gradient of a tile, tile layout, before clipping. REQUIRES: clipping is on and
  // gradients cross as FP32; of tile 1, that the host updates all of it; in_flight() == 0.
  absl::Span<const float> HeldGradient(int tile) const;

  // Hands every tile to `calls.take_tile` as it is after the last submitted step, beside what is
  // submitted later: an update of a tile waits until the tile was taken. REQUIRES: no save is in
  // flight.
  void BeginSave(SaveCalls calls);
  // Has `calls.finish` called once all tiles were taken. REQUIRES: BeginSave was called.
  void CommitSave();
  // Whether AwaitSave would return at once.
  bool save_done() const;
  // Waits for calls.finish and ends the save. An error is a step's: not all calls were made then.
  // REQUIRES: CommitSave was called.
  absl::Status AwaitSave();

  // Gives the device's memory back and keeps the state, which may still be saved. REQUIRES:
  // in_flight() == 0, the device is held.
  void ReleaseDevice();
  // Takes it again: ResourceExhausted if it is not there any more; the device is then not held.
  // REQUIRES: the device is not held.
  absl::Status TakeDevice();
  bool holds_device() const { return arena_memory_ != nullptr; }

 private:
  struct Pending {
    std::shared_ptr<Executor::Ticket> ticket;
    int slot = 0;
    StepRecord record;
  };

  Trainer(const JobSpec& spec, const MemoryPlan& plan) : spec_(spec), plan_(plan) {}
  absl::Status UploadRopeTables();
  absl::StatusOr<int> RunForward(const Batch& batch, LogitsRequest* logits);

  const JobSpec spec_;
  const MemoryPlan plan_;
  Device* device_ = nullptr;
  std::unique_ptr<DeviceMemory> arena_memory_;
  DeviceBuffers device_buffers_;
  HostBuffers host_buffers_;
  std::vector<Tile> tiles_;
  std::unique_ptr<StepRunner> runner_;
  PipelineState pipeline_state_;
  std::deque<Pending> pending_;
  std::vector<std::shared_ptr<Executor::Ticket>> withdrawn_;  // not settled, the last one first
  std::chrono::steady_clock::time_point last_finished_{};
  const Kernels* kernels_ = nullptr;
  double last_matmul_seconds_ = 0;  // the kernels' total when the last step was collected
  std::shared_ptr<Executor::Ticket> save_ticket_, save_end_ticket_;
  std::unique_ptr<Executor> executor_;  // last: its lanes use the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_TRAINER_H_

// Trainer runs steps over a model whose state lies in host memory. It submits schedules, collects
// records, evaluates and saves. It does not know files, data sets or job control.
//
// With several devices Trainer drives a rank for each. All ranks share the tiles: each computes its
// part of a batch and updates its shard (schedule.h).
//
// The ranks of a job may be divided among processes, each with a trainer, whose tiles hold the
// shards of its ranks alone. All processes call the methods that run or save anything in the same
// order and with whole batches. They get the same results, except where a method says otherwise.
//
// Thread safety: Interrupt may be called from any thread, all other methods from one thread.
#ifndef MEGATRAIN_ENGINE_TRAINER_TRAINER_H_
#define MEGATRAIN_ENGINE_TRAINER_TRAINER_H_

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
#include "engine/base/mutex.h"
#include "engine/data/sequences/batch.h"
#include "engine/device/device.h"
#include "engine/job/job_spec.h"
#include "engine/memory/host_pool.h"
#include "engine/model/parameter_count.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_updater.h"
#include "engine/pipeline/buffers.h"
#include "engine/pipeline/executor.h"
#include "engine/pipeline/step_runner.h"
#include "engine/plan/memory_plan.h"
#include "engine/trace/step_record.h"
#include "engine/trainer/rank_pipeline.h"
#include "engine/trainer/save_gate.h"

namespace megatrain {

// Returns the means over the pairs of `sums` (step_runner.h). REQUIRES: sums.pairs > 0.
Rewards RewardsOf(const RewardSums& sums);

// Returns the coefficient of the auxiliary loss: the job's if it sets one, else the largest of the
// model's layers (0 without experts).
double RouterAuxiliaryLoss(const JobSpec& spec, const ModelDescription& model);

class Trainer {
 public:
  // Takes the memory of the plan from `pool` and the ranks' devices; the tiles are not filled, and
  // the device is held (holds_device).
  // `spec`, which has the optimizer's settings, and `plan` are copied. The plan's layout, `pool`
  // and what `ranks` points to must outlive the trainer. Returns ResourceExhausted if the memory is
  // not there (IsPoolBusy tells whether other leases hold it), and other errors of the devices.
  // After an error the ranks' communicators are aborted. REQUIRES: `ranks` are as many as the plan
  // has for a process.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const JobSpec& spec,
                                                         const MemoryPlan& plan,
                                                         std::vector<RankParts> ranks,
                                                         HostPool* pool);
  // Does the same for a plan of one rank. `device` and `updater` must outlive the trainer.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const JobSpec& spec,
                                                         const MemoryPlan& plan, Device* device,
                                                         AdamWUpdater* updater, HostPool* pool);
  // Waits for operations that run. Those that have not started are dropped.
  ~Trainer();

  int ranks() const { return plan_.dimensions.shape.ranks; }  // of all processes

  // Returns the plan's dimensions. embedding_from_host is false in them if the device's kernels
  // cannot read host memory.
  const PipelineDimensions& dimensions() const { return plan_.dimensions; }
  // Returns the model's state, by tile the parts of this process's ranks, one if the plan is not
  // for training. It is valid as long as the trainer. It is uninitialised until the caller fills
  // it. It may be read while no step is in flight. It may be changed while neither a step nor a
  // save is in flight; call InvalidateDeviceWeights then.
  const std::vector<ProcessTile>& tiles() const { return tiles_; }

  // Training steps.

  // Queues the training step batch.step and copies the batch. Two steps may be in flight, because
  // the forward pass of one overlaps the updates of the one before. Returns InvalidArgument and
  // queues nothing if the batch has a token id that the model does not have. Returns the error of
  // an earlier step. `group_rates` has the learning rates of optimizer.groups, in their order.
  // REQUIRES: in_flight() < 2, steps are submitted in order, the device is held, the batch is no
  // larger than the plan's, and `group_rates` has a rate for each group.
  absl::Status Submit(const Batch& batch, double learning_rate,
                      absl::Span<const double> group_rates = {});
  int in_flight() const { return static_cast<int>(pending_.size()); }
  // Takes back the step submitted last, and returns true. Its results are lost, and it may be
  // submitted again once SettleWithdrawn has returned. Returns false, without an effect, after an
  // error of a step, and if the step has started to change the model or, unless `during_backward`,
  // to go backward through a layer. With several ranks it always returns false, because they could
  // not give up the same operations. REQUIRES: in_flight() > 0, and no save of this step is in
  // flight.
  bool Withdraw(bool during_backward);
  // Blocks until the running operations of all steps taken back are done. Returns the error of a
  // step. REQUIRES: in_flight() == 0.
  absl::Status SettleWithdrawn();
  // Blocks until the operations of the oldest step are done or queued on the device, and returns
  // true. If `interrupted` returns true before that, returns false. While AwaitStep has to wait, it
  // calls `interrupted` at first and after every Interrupt, and possibly more often. `interrupted`
  // must not call the trainer. REQUIRES: in_flight() > 0.
  bool AwaitStep(absl::FunctionRef<bool()> interrupted);
  // Makes an AwaitStep that is waiting call `interrupted`. Does nothing if none is.
  void Interrupt();
  // Returns the number of the step that failed before it changed anything, on all ranks. The tiles
  // then hold the state after the step before it. Returns 0 if there is none, and always with
  // several processes. REQUIRES: a step has failed.
  int64_t failed_unchanged_step() const;
  // Waits for the oldest step, including its updates, and returns its record. The record lacks
  // total_tokens, time and the results of an evaluation. Each lane's seconds are the most of any
  // rank. compute_seconds are those of this process's first rank. Returns Aborted, naming the step
  // and where in the model, if a loss, norm or update is not finite, and other errors of the step.
  // After an error the step counts as collected. REQUIRES: in_flight() > 0.
  absl::StatusOr<StepRecord> Collect();

  // Forward passes. EvaluateLossSum, AnswerLogps and Logits REQUIRE: in_flight() == 0, the device
  // is held, and the batch is no larger than the plan's. They return when the pass is done, with
  // the errors of Submit and of the pass.

  // Returns the sum of the losses of the batch's predictions or pairs. Sets `*rewards`, if it is
  // given; all 0 if the batch is not one of pairs.
  absl::StatusOr<double> EvaluateLossSum(const Batch& batch, RewardSums* rewards = nullptr);
  // Returns the log-probability of each answer of the batch's pairs, [pairs, 2], the chosen one's
  // first. REQUIRES also: the batch is one of pairs.
  absl::StatusOr<std::vector<double>> AnswerLogps(const Batch& batch);
  // Makes the next schedule load all weights again. Call it after tiles were changed. REQUIRES:
  // in_flight() == 0.
  void InvalidateDeviceWeights();
  // Returns the logits of the tokens tokens[i] of each micro-batch i, [tokens of all ranges,
  // vocabulary]. Micro-batches beyond the list give none. If the batch has rows of the key-value
  // cache (Batch::first_rows), keys and values are kept there until ReleaseDevice. REQUIRES also:
  // the micro-batches are no more than the plan has for a rank, and the rows are among cache_rows.
  absl::StatusOr<std::vector<float>> Logits(const Batch& batch,
                                            const std::vector<TokenRange>& tokens);
  // For tests. Returns a tile's gradient of the last step, before clipping: the elements of the
  // shards of this process's ranks, one rank after the other, as they lie in the tile. REQUIRES:
  // clipping is on, gradients cross the link as FP32, and in_flight() == 0; for tile 1 also that
  // the host updates all of it.
  std::vector<float> HeldGradient(int tile) const;

  // Saves: BeginSave, CommitSave, AwaitSave, in this order.

  // Passes every tile to `calls.take_tile`, on the io lane, as it is after the last submitted step.
  // Later steps may run meanwhile: the update of a tile waits until the tile was taken. REQUIRES:
  // no save is in flight, and neither function of `calls` is empty.
  void BeginSave(SaveCalls calls);
  // Lets `calls.finish` be called once all tiles were taken. REQUIRES: BeginSave was called.
  void CommitSave();
  // Returns true if AwaitSave would return at once; false before CommitSave.
  bool save_done() const;
  // Waits for calls.finish and ends the save. No function of `calls` runs once this returns.
  // Returns the error of a step if it kept some of them from being called. REQUIRES: CommitSave was
  // called.
  absl::Status AwaitSave();

  // The devices' memory, which a run that is paused gives back.

  // Gives the device's memory back and keeps the state, which may still be saved. REQUIRES:
  // in_flight() == 0, steps taken back are settled (SettleWithdrawn), and the device is held.
  void ReleaseDevice();
  // Takes the device's memory again. Returns ResourceExhausted if it is not free any more, and
  // other errors of the devices (IsDeviceLost). After any error the device is not held. REQUIRES:
  // the device is not held.
  absl::Status TakeDevice();
  bool holds_device() const { return ranks_.front()->holds_device(); }

 private:
  using Tickets = std::vector<std::shared_ptr<Executor::Ticket>>;  // by rank
  struct Pending {
    Tickets tickets;
    int slot = 0;
    StepRecord record;
  };

  Trainer(const JobSpec& spec, const MemoryPlan& plan)
      : spec_(spec),
        plan_(plan),
        active_parameters_(ActiveParameterCount(plan.dimensions.layout->model)),
        router_auxiliary_loss_(RouterAuxiliaryLoss(spec, plan.dimensions.layout->model)) {}
  absl::Status MakeTiles(const std::vector<RankParts>& ranks, HostPool* pool);
  absl::Status MakeRanks(std::vector<RankParts>& ranks, HostPool* pool);
  // Ends the operations of all ranks, on the first error of one.
  void Abort(const absl::Status& cause);
  absl::Status status() const;
  // Gives each rank its part of the batch, or all of it if `whole`, and returns the slot.
  absl::StatusOr<int> PrepareBatch(const Batch& batch, bool whole);
  // Submits what `build` returns for each rank.
  template <typename Build>
  Tickets SubmitEach(const Build& build);
  // Waits for the tickets of all ranks of this process. Appends the busy seconds of each to `busy`,
  // which may be null; those of the result are the first rank's.
  absl::StatusOr<Executor::Timing> WaitEach(const Tickets& tickets,
                                            std::vector<LaneSeconds>* busy = nullptr);
  bool one_process() const { return plan_.dimensions.processes == 1; }
  // Returns the communicator of the processes' training threads.
  Communicator* control() const { return ranks_.front()->control(); }
  // Adds to `record` and `router` what other processes know of the step, and to `busy` the lanes of
  // their ranks, all in the order of ranks.
  absl::Status ShareRecord(StepRecord& record, RouterTotals& router,
                           std::vector<LaneSeconds>& busy);
  // Runs a forward pass that gives `logits`, or the losses if that is null. Returns its slot.
  absl::StatusOr<int> RunForward(const Batch& batch, LogitsRequest* logits);

  const JobSpec spec_;
  const MemoryPlan plan_;
  const int64_t active_parameters_;  // those that a token uses
  const double router_auxiliary_loss_;
  std::vector<HostLease> tile_leases_;
  std::vector<ProcessTile> tiles_;
  std::deque<Pending> pending_;
  Tickets withdrawn_;  // of the rank alone; not settled, the last one first
  std::chrono::steady_clock::time_point last_finished_{};
  Mutex gate_mutex_;
  std::unique_ptr<SaveGate> save_gate_ ABSL_GUARDED_BY(gate_mutex_);  // of the save in flight
  Tickets save_tickets_, save_end_tickets_;
  std::vector<std::unique_ptr<RankPipeline>> ranks_;  // last: their lanes use the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRAINER_TRAINER_H_

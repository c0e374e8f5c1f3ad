// RankPipeline runs the schedules of one rank: a device with its memory, the rank's buffers on the
// host, and the lanes. Trainer drives all ranks of the process; with one device there is one.
//
// Thread safety: Abort and executor may be called from any thread, all other methods from one
// thread.
#ifndef MEGATRAIN_ENGINE_TRAINER_RANK_PIPELINE_H_
#define MEGATRAIN_ENGINE_TRAINER_RANK_PIPELINE_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/data/sequences/batch.h"
#include "engine/device/device.h"
#include "engine/job/job_spec.h"
#include "engine/memory/host_pool.h"
#include "engine/model/tile.h"
#include "engine/pipeline/buffers.h"
#include "engine/pipeline/executor.h"
#include "engine/pipeline/step_runner.h"
#include "engine/plan/memory_plan.h"
#include "engine/trainer/rank_parts.h"

namespace megatrain {

class RankPipeline {
 public:
  // Takes the memory of rank `rank` (counted over all processes) from `pool` and the device.
  // `plan`, its layout, `tiles` (Trainer::tiles), `pool` and what `parts` points to must outlive
  // this. `failed` is the one of Executor::Create. Returns ResourceExhausted if the memory is not
  // there, and other errors of the device. Before it returns an error it calls parts.Abort, because
  // the communicators of ranks wait for each other when they are destroyed.
  static absl::StatusOr<std::unique_ptr<RankPipeline>> Create(
      const JobSpec& spec, const MemoryPlan& plan, int rank, RankParts parts, HostPool* pool,
      const std::vector<ProcessTile>* tiles, std::function<void(const absl::Status&)> failed);

  const PipelineDimensions& dimensions() const { return dimensions_; }  // with this shape.rank
  Executor& executor() { return *executor_; }
  StepRunner& runner() { return *runner_; }
  PipelineState& state() { return pipeline_state_; }  // for the schedules that are built
  const HostBuffers& host_buffers() const { return host_buffers_; }

  // Does as RankParts::Abort.
  void Abort(const absl::Status& cause) const { parts_.Abort(cause); }
  // Does as StepRunner::exchange_status.
  absl::Status exchange_status() const { return runner_->exchange_status(); }
  // Do as Trainer::ReleaseDevice and TakeDevice, for this rank. TakeDevice resets state().
  void ReleaseDevice();
  absl::Status TakeDevice();
  bool holds_device() const { return arena_memory_ != nullptr; }
  // Waits for operations that run. Only EndExchange and destruction may follow. REQUIRES: Abort was
  // called if the process has several ranks.
  void EndOperations() { executor_ = nullptr; }
  // Destroys the communicators. REQUIRES: the operations of all ranks of the process have ended,
  // because one that fails calls their Abort.
  void EndExchange() { parts_.communicators = {}; }

  Communicator* control() const { return parts_.control; }  // RankParts::control; may be null
  // Returns the seconds that the device spent in matrix products since the last call, or Create; 0
  // if it does not measure them.
  double TakeMatMulSeconds();

 private:
  RankPipeline(const MemoryPlan& plan, int rank, RankParts parts)
      : plan_(plan), dimensions_(plan.dimensions), parts_(std::move(parts)) {
    dimensions_.shape.rank = rank;
  }
  absl::Status Open(const JobSpec& spec, HostPool* pool, const std::vector<ProcessTile>* tiles,
                    std::function<void(const absl::Status&)> failed);
  absl::Status UploadRopeTables();

  const MemoryPlan& plan_;
  PipelineDimensions dimensions_;
  RankParts parts_;
  std::unique_ptr<DeviceMemory> arena_memory_;
  DeviceBuffers device_buffers_;
  HostBuffers host_buffers_;
  std::unique_ptr<StepRunner> runner_;
  PipelineState pipeline_state_;
  double last_matmul_seconds_ = 0;
  std::unique_ptr<Executor> executor_;  // last: its lanes use the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRAINER_RANK_PIPELINE_H_

// Executor runs schedules on their lanes (lane.h). Each lane has a host thread; device lanes also
// have a stream each.
//
// Thread safety: Interrupt may be called from any thread; all other methods from one (the
// trainer's).
//
// Invariants:
// - The operations of a lane run in the order submitted.
// - An operation starts when those that it waits for are done. Between two device lanes it is
//   queued as soon as the other one is queued, because the device then keeps the order.
// - After the first error no further operation starts, and all operations are then counted as done.
//   Every Settle returns that error, and so does every Wait for a ticket that it cut short.
#ifndef MEGATRAIN_ENGINE_PIPELINE_EXECUTOR_H_
#define MEGATRAIN_ENGINE_PIPELINE_EXECUTOR_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/device/device.h"
#include "engine/pipeline/dependency_tracker.h"
#include "engine/pipeline/schedule/schedule.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// The most bytes of host memory that an operation of a submitted schedule takes, with its place in
// the queues and its share of the device's events. Lists of resources that outgrow their place in
// the Op are not counted; only a few operations of a schedule have such lists.
inline constexpr int64_t kQueuedOperationBytes = 768;

// Carries out operations. The lanes' threads call Run, each lane for one operation at a time.
class OpRunner {
 public:
  virtual ~OpRunner() = default;
  // Runs `op` on a host lane, where `stream` is null, and returns when it is done; or queues its
  // work on `stream`. Any error stops the executor.
  virtual absl::Status Run(const Op& op, Stream* stream) = 0;
};

class Executor {
 public:
  // A submitted schedule.
  class Ticket;

  // The times that a schedule took, in seconds.
  struct Timing {
    LaneSeconds busy;
    double forward = 0;  // the part of busy.compute for the layers before the loss
    std::map<std::string, double> compute;  // busy.compute by the names of operations
    // The start of the first operation and the end of the last one. An operation of a device lane
    // counts as started when it was queued, and as ended no earlier than its duration after that.
    std::chrono::steady_clock::time_point started, finished;
  };

  // Creates the streams and starts the threads. `device` and `runner` must outlive the executor.
  // `failed`, if it is not empty, is called with each error that an operation meets, on the thread
  // of its lane, before the executor stops for it. Returns the errors of Device::CreateStream.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(
      Device* device, OpRunner* runner,
      std::function<void(const absl::Status& status)> failed = nullptr);
  // Waits for operations that have started, and for what they queued on streams. The others are
  // dropped.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues the schedule's operations and returns at once. After an error the operations do not run,
  // and Wait tells it.
  std::shared_ptr<Ticket> Submit(Schedule schedule);
  // Blocks until all operations of the ticket are done. Returns the executor's first error if it
  // kept one of them from being done, and errors of the device (Synchronize, ElapsedSeconds).
  // REQUIRES: each ticket is waited for once, and after the tickets submitted earlier that share a
  // lane with it.
  absl::StatusOr<Timing> Wait(const std::shared_ptr<Ticket>& ticket);
  // Blocks until all operations of the ticket are done or queued on streams, and returns true. If
  // `interrupted` returns true before that, returns false. While AwaitDone has to wait, it calls
  // `interrupted` at first and after every Interrupt and every operation. `interrupted` is called
  // under the executor's lock and must not call the executor.
  bool AwaitDone(const std::shared_ptr<Ticket>& ticket, absl::FunctionRef<bool()> interrupted);
  // Makes an AwaitDone that is waiting call `interrupted`.
  void Interrupt();
  // Prevents the ticket from starting any further operation and returns true. Settle must then be
  // called in place of Wait. Returns false, with no effect, after an error, or if the ticket has
  // started an operation that changes the model or, unless `during_backward`, one of the backward
  // pass of a layer. Wait must then be called. REQUIRES: no ticket submitted later needs the
  // results of this one, unless it is withdrawn too; the ticket was not given to Wait.
  bool Withdraw(const std::shared_ptr<Ticket>& ticket, bool during_backward);
  // Blocks until those operations of a withdrawn ticket that had started are done. Returns the
  // executor's first error, and errors of the device. REQUIRES: as Wait.
  absl::Status Settle(const std::shared_ptr<Ticket>& ticket);
  // Returns true if all operations of the ticket are done or queued on streams, or were dropped
  // after an error.
  bool Done(const std::shared_ptr<Ticket>& ticket) const;
  // Returns the first error, or OK.
  absl::Status status() const;

 private:
  struct Item;

  Executor(Device* device, OpRunner* runner, std::function<void(const absl::Status& status)> failed)
      : device_(device), runner_(runner), failed_(std::move(failed)) {}
  void RunLane(int lane);
  absl::Status RunItem(int lane, Item& item);
  absl::Status RunNamed(int lane, Item& item);
  absl::StatusOr<std::shared_ptr<Event>> TakeEvent() ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitIssued(const Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(const Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device* const device_;
  OpRunner* const runner_;
  const std::function<void(const absl::Status& status)> failed_;
  DependencyTracker tracker_;  // used by the submitting thread only

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::array<std::deque<std::shared_ptr<Item>>, kLanes> queues_ ABSL_GUARDED_BY(mutex_);
  LaneCounts issued_ ABSL_GUARDED_BY(mutex_) = {};
  // By lane, operations whose end may still be waited for on a stream. front() has number retired_
  // + 1.
  std::array<std::deque<std::shared_ptr<Item>>, kLanes> live_ ABSL_GUARDED_BY(mutex_);
  LaneCounts retired_ ABSL_GUARDED_BY(mutex_) = {};
  // Events for reuse. A lane may still hold one that it is about to wait for, so an event is taken
  // only if nothing else holds it.
  std::vector<std::shared_ptr<Event>> free_events_ ABSL_GUARDED_BY(mutex_);

  std::array<std::unique_ptr<Stream>, kLanes> streams_;  // null for host lanes
  std::vector<std::thread> threads_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_EXECUTOR_H_

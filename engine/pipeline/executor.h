// Runs schedules on real lanes: a host thread each; device lanes own a stream each.
//
// Thread safety: Interrupt from any thread; all else from one (the trainer's).
// Invariants: a lane's operations run in the order submitted; an operation starts when what it
// waits for is done (for waits between streams: is queued, the device then keeps the order). After
// the first error no further operation runs, all are counted as done, and every Wait returns that
// error.
#ifndef MEGATRAIN_ENGINE_PIPELINE_EXECUTOR_H_
#define MEGATRAIN_ENGINE_PIPELINE_EXECUTOR_H_

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/device/device.h"
#include "engine/pipeline/dependency_tracker.h"
#include "engine/pipeline/schedule.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// What the operations do. Called from the lanes' threads, one call at a time a lane.
class OpRunner {
 public:
  virtual ~OpRunner() = default;
  // `stream` is null on host lanes.
  virtual absl::Status Run(const Op& op, Stream* stream) = 0;
};

class Executor {
 public:
  // One submitted schedule.
  class Ticket;

  struct Timing {
    LaneSeconds busy;
    double forward = 0;  // of busy.compute: the pass through the layers before the loss
    // From the schedule's first operation's start to its last one's end.
    std::chrono::steady_clock::time_point started, finished;
  };

  // `device` and `runner` must outlive the executor.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Device* device, OpRunner* runner);
  // Waits for what runs; what has not started is dropped.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  std::shared_ptr<Ticket> Submit(Schedule schedule);
  // Blocks until all operations of the ticket are done. REQUIRES: tickets are waited for in order,
  // each once.
  absl::StatusOr<Timing> Wait(const std::shared_ptr<Ticket>& ticket);
  // Blocks until Wait would return at once (true) or `interrupted` holds (false), which is asked at
  // first and after every Interrupt. It must not call the executor.
  bool AwaitDone(const std::shared_ptr<Ticket>& ticket, absl::FunctionRef<bool()> interrupted);
  void Interrupt();
  // Of the last submitted ticket: starts none of its operations any more and returns true; Settle
  // then takes the place of Wait. Returns false, and the ticket is to be waited for, once an
  // operation of kind `final` or one that changes the model has started, or after an error.
  bool Withdraw(const std::shared_ptr<Ticket>& ticket, OpKind final);
  // Blocks until the operations of a withdrawn ticket that run are done.
  absl::Status Settle(const std::shared_ptr<Ticket>& ticket);
  // Whether Wait would return at once (device work may still be queued).
  bool Done(const std::shared_ptr<Ticket>& ticket) const;
  // The first error, or OK.
  absl::Status status() const;

 private:
  struct Item;
  struct LaneState;

  Executor(Device* device, OpRunner* runner) : device_(device), runner_(runner) {}
  void RunLane(int lane);
  absl::Status RunItem(int lane, Item& item);
  absl::Status RunNamed(int lane, Item& item);
  absl::StatusOr<std::shared_ptr<Event>> TakeEvent() ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitIssued(const Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(const Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device* const device_;
  OpRunner* const runner_;
  DependencyTracker tracker_;  // the submitting thread's

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::array<std::deque<std::shared_ptr<Item>>, kLanes> queues_ ABSL_GUARDED_BY(mutex_);
  LaneCounts issued_ ABSL_GUARDED_BY(mutex_) = {};
  // Operations whose end may still be waited for on a stream, by lane; front() is number retired_
  // + 1.
  std::array<std::deque<std::shared_ptr<Item>>, kLanes> live_ ABSL_GUARDED_BY(mutex_);
  LaneCounts retired_ ABSL_GUARDED_BY(mutex_) = {};
  // A lane may still hold one that it is about to wait for: only those held by nobody else are used
  // again.
  std::vector<std::shared_ptr<Event>> free_events_ ABSL_GUARDED_BY(mutex_);

  std::array<std::unique_ptr<Stream>, kLanes> streams_;  // null for host lanes
  std::vector<std::thread> threads_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_EXECUTOR_H_

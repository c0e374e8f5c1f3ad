#include "engine/pipeline/executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"
#include "engine/base/thread_pool.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

double& BusyOf(LaneSeconds& busy, int lane) {
  switch (static_cast<Lane>(lane)) {
    case Lane::kH2D:
      return busy.h2d;
    case Lane::kCompute:
      return busy.compute;
    case Lane::kD2H:
      return busy.d2h;
    case Lane::kDeviceUpdate0:
    case Lane::kDeviceUpdate1:
      return busy.device_update;
    case Lane::kCollective:
      return busy.collective;
    case Lane::kUpdate:
      return busy.update;
    case Lane::kIo:
      return busy.io;
  }
  return busy.io;
}

}  // namespace

struct Executor::Item {
  Item(Op scheduled, const LaneCounts& before) : op(std::move(scheduled)), waits(before) {}

  Op op;
  LaneCounts waits;
  // Device lanes: recorded around the operation.
  std::shared_ptr<Event> start, end;
  // Host lanes: when it ran. Device lanes: when it was queued.
  Clock::time_point host_start, host_end;
  bool ran = false;
  // Guarded by the executor's mutex.
  bool started = false;
  bool withdrawn = false;
};
class Executor::Ticket {
 public:
  std::vector<std::shared_ptr<Item>> items;
  LaneCounts last = {};  // number of its last operation in each lane, 0 if it has none there
};

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    Device* device, OpRunner* runner, std::function<void(const absl::Status& status)> failed) {
  std::unique_ptr<Executor> executor(new Executor(device, runner, std::move(failed)));
  for (int lane = 0; lane < kLanes; ++lane) {
    if (IsDeviceLane(static_cast<Lane>(lane))) {
      const StreamUse use =
          static_cast<Lane>(lane) == Lane::kCompute ? StreamUse::kCompute : StreamUse::kCopy;
      MT_ASSIGN_OR_RETURN(executor->streams_[lane], device->CreateStream(use));
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    executor->threads_.emplace_back([e = executor.get(), lane] { e->RunLane(lane); });
  }
  return executor;
}

Executor::~Executor() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<Executor::Ticket> Executor::Submit(Schedule schedule) {
  // An item is kept by its ticket and two queues, and has a block of counts.
  static_assert(sizeof(Item) + 6 * sizeof(std::shared_ptr<Item>) + 128 <= kQueuedOperationBytes);
  auto ticket = std::make_shared<Ticket>();
  ticket->items.reserve(schedule.ops.size());
  for (Op& op : schedule.ops) {
    const LaneCounts waits = tracker_.Add(op);
    const int lane = static_cast<int>(op.lane);
    ticket->last[lane] = tracker_.counts()[lane];
    ticket->items.push_back(std::make_shared<Item>(std::move(op), waits));
  }
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<Item>& item : ticket->items) {
    const int lane = static_cast<int>(item->op.lane);
    queues_[lane].push_back(item);
    live_[lane].push_back(item);
  }
  changed_.NotifyAll();
  return ticket;
}

absl::StatusOr<std::shared_ptr<Event>> Executor::TakeEvent() {
  {
    MutexLock lock(&mutex_);
    if (!free_events_.empty() && free_events_.back().use_count() == 1) {
      std::shared_ptr<Event> event = std::move(free_events_.back());
      free_events_.pop_back();
      return event;
    }
  }
  return device_->CreateEvent();
}

absl::Status Executor::RunItem(int lane, Item& item) {
  device_->BeginRange(item.op.name());
  absl::Status status = RunNamed(lane, item);
  device_->EndRange();
  return status;
}

absl::Status Executor::RunNamed(int lane, Item& item) {
  if (!IsDeviceLane(static_cast<Lane>(lane))) {
    item.host_start = Clock::now();
    absl::Status status = runner_->Run(item.op, nullptr);
    item.host_end = Clock::now();
    return status;
  }
  Stream& stream = *streams_[lane];
  MT_ASSIGN_OR_RETURN(item.start, TakeEvent());
  MT_ASSIGN_OR_RETURN(std::shared_ptr<Event> end, TakeEvent());
  item.host_start = Clock::now();
  MT_RETURN_IF_ERROR(device_->Record(stream, *item.start));
  MT_RETURN_IF_ERROR(runner_->Run(item.op, &stream));
  MT_RETURN_IF_ERROR(device_->Record(stream, *end));
  item.host_end = Clock::now();
  item.end = std::move(end);
  return absl::OkStatus();
}

void Executor::RunLane(int lane) {
  NameThisThread(LaneName(static_cast<Lane>(lane)));
  FlushDenormalsInThisThread();
  const bool device_lane = IsDeviceLane(static_cast<Lane>(lane));
  while (true) {
    std::shared_ptr<Item> item;
    std::vector<std::shared_ptr<Event>> device_waits;
    bool skip = false;
    {
      MutexLock lock(&mutex_);
      while (queues_[lane].empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      item = std::move(queues_[lane].front());
      queues_[lane].pop_front();
      for (int other = 0; other < kLanes; ++other) {
        const int64_t number = item->waits[other];
        while (issued_[other] < number && !stopping_) changed_.Wait(&mutex_);
        if (stopping_) return;
        // A host lane's operation is done when it is issued; a stream's only when its event has
        // passed.
        if (number > retired_[other] && IsDeviceLane(static_cast<Lane>(other))) {
          const Item& before = *live_[other][number - retired_[other] - 1];
          if (before.end != nullptr) device_waits.push_back(before.end);
        }
      }
      skip = !status_.ok() || item->withdrawn;
      item->started = !skip;
    }
    absl::Status status;
    if (!skip) {
      for (const std::shared_ptr<Event>& event : device_waits) {
        if (!status.ok()) break;
        status =
            device_lane ? device_->Wait(*streams_[lane], *event) : device_->Synchronize(*event);
      }
      if (status.ok()) status = RunItem(lane, *item);
      if (!status.ok() && failed_) failed_(status);
    }
    MutexLock lock(&mutex_);
    item->ran = !skip && status.ok();
    if (!status.ok() && status_.ok()) status_ = std::move(status);
    ++issued_[lane];
    changed_.NotifyAll();
  }
}

absl::StatusOr<Executor::Timing> Executor::Wait(const std::shared_ptr<Ticket>& ticket) {
  {
    MutexLock lock(&mutex_);
    WaitIssued(*ticket);
    // A schedule that was carried out is not touched by the error of a later one.
    const bool ran = std::all_of(ticket->items.begin(), ticket->items.end(),
                                 [](const std::shared_ptr<Item>& item) { return item->ran; });
    if (!status_.ok() && !ran) return status_;
  }
  Timing timing;
  bool first = true;
  for (const std::shared_ptr<Item>& item : ticket->items) {
    const int lane = static_cast<int>(item->op.lane);
    if (IsDeviceLane(item->op.lane)) {
      MT_RETURN_IF_ERROR(device_->Synchronize(*item->end));
      MT_ASSIGN_OR_RETURN(const double seconds, device_->ElapsedSeconds(*item->start, *item->end));
      BusyOf(timing.busy, lane) += seconds;
      if (item->op.IsLayersForward()) timing.forward += seconds;
      if (item->op.lane == Lane::kCompute) timing.compute[item->op.name()] += seconds;
      // The device's clock is its own: the host saw the work queued at host_start, at the earliest
      // it ended then plus its duration.
      item->host_end =
          std::max(item->host_end, item->host_start + std::chrono::duration_cast<Clock::duration>(
                                                          std::chrono::duration<double>(seconds)));
    } else {
      BusyOf(timing.busy, lane) +=
          std::chrono::duration<double>(item->host_end - item->host_start).count();
    }
    timing.started = first ? item->host_start : std::min(timing.started, item->host_start);
    timing.finished = first ? item->host_end : std::max(timing.finished, item->host_end);
    first = false;
  }
  MutexLock lock(&mutex_);
  Retire(*ticket);
  return timing;
}

void Executor::WaitIssued(const Ticket& ticket) {
  for (int lane = 0; lane < kLanes; ++lane) {
    while (issued_[lane] < ticket.last[lane]) changed_.Wait(&mutex_);
  }
}

void Executor::Retire(const Ticket& ticket) {
  for (int lane = 0; lane < kLanes; ++lane) {
    while (retired_[lane] < ticket.last[lane]) {
      Item& item = *live_[lane].front();
      if (item.start != nullptr) free_events_.push_back(std::move(item.start));
      if (item.end != nullptr) free_events_.push_back(std::move(item.end));
      live_[lane].pop_front();
      ++retired_[lane];
    }
  }
}

bool Executor::AwaitDone(const std::shared_ptr<Ticket>& ticket,
                         absl::FunctionRef<bool()> interrupted) {
  MutexLock lock(&mutex_);
  for (int lane = 0; lane < kLanes; ++lane) {
    while (issued_[lane] < ticket->last[lane]) {
      if (interrupted()) return false;
      changed_.Wait(&mutex_);
    }
  }
  return true;
}

void Executor::Interrupt() {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

bool Executor::Withdraw(const std::shared_ptr<Ticket>& ticket, bool during_backward) {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return false;
  for (const std::shared_ptr<Item>& item : ticket->items) {
    const bool final = item->op.ChangesState() || (!during_backward && item->op.IsLayersBackward());
    if (item->started && final) return false;
  }
  for (const std::shared_ptr<Item>& item : ticket->items) item->withdrawn = true;
  return true;
}

absl::Status Executor::Settle(const std::shared_ptr<Ticket>& ticket) {
  {
    MutexLock lock(&mutex_);
    // Each is still counted in its turn, when what it waits for is done: later schedules rely on
    // that.
    WaitIssued(*ticket);
    if (!status_.ok()) return status_;
  }
  for (const std::shared_ptr<Item>& item : ticket->items) {
    if (item->end != nullptr) MT_RETURN_IF_ERROR(device_->Synchronize(*item->end));
  }
  MutexLock lock(&mutex_);
  Retire(*ticket);
  return absl::OkStatus();
}

bool Executor::Done(const std::shared_ptr<Ticket>& ticket) const {
  MutexLock lock(&mutex_);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (issued_[lane] < ticket->last[lane]) return false;
  }
  return true;
}

absl::Status Executor::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

}  // namespace megatrain

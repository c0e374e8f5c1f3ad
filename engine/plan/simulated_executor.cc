#include "engine/plan/simulated_executor.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace megatrain {

double WorkSeconds(const LayerWork& work, const LaneRates& lane_rates) {
  const double running =
      work.product_flops / lane_rates.product_flops_per_second +
      work.attention_forward_flops / lane_rates.attention_forward_flops_per_second +
      work.attention_backward_flops / lane_rates.attention_backward_flops_per_second +
      work.device_bytes / lane_rates.device_bytes_per_second;
  return std::max(running, work.launches * lane_rates.launch_seconds);
}

double OpSeconds(const Op& op, const LaneRates& lane_rates) {
  const double link = static_cast<double>(op.h2d_bytes) / lane_rates.h2d_bytes_per_second +
                      static_cast<double>(op.d2h_bytes) / lane_rates.d2h_bytes_per_second;
  const double bytes = static_cast<double>(op.bytes);
  switch (op.lane) {
    case Lane::kH2D:
      return bytes / lane_rates.h2d_bytes_per_second;
    case Lane::kCompute:
      return link + WorkSeconds(op.work, lane_rates);
    case Lane::kD2H:
      return bytes / lane_rates.d2h_bytes_per_second;
    case Lane::kDeviceUpdate0:
    case Lane::kDeviceUpdate1:
      return link + bytes / lane_rates.device_bytes_per_second;
    case Lane::kCollective:
      return bytes / (op.is<ReduceGradientOp>() ? lane_rates.reduce_bytes_per_second
                                                : lane_rates.gather_bytes_per_second);
    case Lane::kUpdate:
      return bytes / lane_rates.update_bytes_per_second;
    case Lane::kIo:
      return bytes / lane_rates.disk_bytes_per_second;
  }
  return 0;
}

std::array<double, SimulatedExecutor::kParts> SimulatedExecutor::PartsOf(const Op& op) const {
  const double seconds = OpSeconds(op, lane_rates_);
  if (op.lane == Lane::kH2D) return {seconds, 0, 0};
  if (op.lane == Lane::kD2H) return {0, 0, seconds};
  const double down = static_cast<double>(op.h2d_bytes) / lane_rates_.h2d_bytes_per_second;
  const double up = static_cast<double>(op.d2h_bytes) / lane_rates_.d2h_bytes_per_second;
  return {down, seconds - down - up, up};
}

// Runs items from time 0 on, each queue in its order. Events are ends of parts.
struct SimulatedExecutor::Clock {
  Clock(const LaneRates& hardware, std::vector<Item>* items) : lane_rates(hardware) {
    for (Item& item : *items) queues[item.queue].push_back(&item);
    end.fill(kNever);
  }

  void Run() {
    BeginWhatCan();
    while (true) {
      ShareHostMemory();
      const auto first = std::min_element(end.begin(), end.end());
      if (*first == kNever) return;
      const int queue = static_cast<int>(first - end.begin());
      now = *first;
      end[queue] = kNever;
      Leave(queue);
      ++part[queue];
      GoOn(queue);
      // Items that nothing lasts of end at once, and others may wait for them.
      while (BeginWhatCan()) {
      }
    }
  }

  // Begins what waits for nothing any more; false if nothing does.
  bool BeginWhatCan() {
    bool any = false;
    for (int queue = 0; queue < kLanes; ++queue) {
      if (running[queue] != nullptr || next[queue] == queues[queue].size()) continue;
      Item* const item = queues[queue][next[queue]];
      bool ready = true;
      for (int lane = 0; lane < kLanes; ++lane) ready &= done[lane] >= item->waits[lane];
      if (!ready) continue;
      item->start_seconds = now;
      running[queue] = item;
      part[queue] = kDown;
      ++next[queue];
      any = true;
      GoOn(queue);
    }
    return any;
  }

  // Takes the queue's item to its next part that lasts, or ends it.
  void GoOn(int queue) {
    Item* const item = running[queue];
    while (part[queue] < kParts && item->seconds[part[queue]] <= 0) ++part[queue];
    if (part[queue] == kParts) {
      item->end_seconds = now;
      running[queue] = nullptr;
      ++done[item->lane];
    } else if (part[queue] == kInside) {
      Start(queue);
    } else {
      std::deque<int>& line = waiting[part[queue]];
      line.push_back(queue);
      if (line.size() == 1) Start(queue);
    }
  }

  // The part that the queue is at has its resource from now on.
  void Start(int queue) {
    end[queue] = now + running[queue]->seconds[part[queue]];
    slowed[queue] = 1;
  }

  // The bytes of host memory that the queue moves in a second of a part that nothing slows.
  double HostMemoryRate(int queue) const {
    if (part[queue] == kDown) return lane_rates.h2d_bytes_per_second;
    if (part[queue] == kUp) return lane_rates.d2h_bytes_per_second;
    return running[queue]->updates_host ? lane_rates.update_bytes_per_second : 0;
  }

  // Slows what is under way to what the host's memory gives.
  void ShareHostMemory() {
    if (lane_rates.host_memory_bytes_per_second == 0) return;
    double asked = 0;
    for (int queue = 0; queue < kLanes; ++queue) {
      if (end[queue] != kNever) asked += HostMemoryRate(queue);
    }
    const double slower = std::max(1.0, asked / lane_rates.host_memory_bytes_per_second);
    for (int queue = 0; queue < kLanes; ++queue) {
      if (end[queue] == kNever || slowed[queue] == slower || HostMemoryRate(queue) == 0) continue;
      end[queue] = now + (end[queue] - now) * slower / slowed[queue];
      slowed[queue] = slower;
    }
  }

  // A part is over: if it was a copy, the next in line has that direction of the link.
  void Leave(int queue) {
    const int over = part[queue];
    if (over == kInside) return;
    std::deque<int>& line = waiting[over];
    line.pop_front();
    if (!line.empty()) Start(line.front());
  }

  static constexpr double kNever = std::numeric_limits<double>::infinity();
  const LaneRates& lane_rates;
  std::array<std::vector<Item*>, kLanes> queues;
  std::array<size_t, kLanes> next = {};
  std::array<Item*, kLanes> running = {};
  std::array<int, kLanes> part = {};
  std::array<std::deque<int>, kParts> waiting;  // for a direction, the first of them has it
  std::array<double, kLanes> end;               // of the part; kNever if it waits for its resource
  std::array<double, kLanes> slowed = {};       // by how much host memory slows it, 1 or more
  LaneCounts done = {};
  double now = 0;
};

SimulatedExecutor::Run SimulatedExecutor::Submit(const Schedule& schedule) {
  const size_t first = items_.size();
  Run run;
  for (const Op& op : schedule.ops) {
    Item item;
    item.lane = item.queue = static_cast<int>(op.lane);
    if (lane_rates_.update_shares_compute && op.lane == Lane::kUpdate) {
      item.queue = static_cast<int>(Lane::kCompute);
    }
    item.waits = tracker_.Add(op);
    item.seconds = PartsOf(op);
    item.updates_host = op.lane == Lane::kUpdate;
    run.busy_seconds[item.lane] += OpSeconds(op, lane_rates_);
    items_.push_back(item);
  }
  std::vector<Item> items = items_;
  Clock(lane_rates_, &items).Run();
  run.spans.reserve(schedule.ops.size());
  for (size_t i = 0; i < schedule.ops.size(); ++i) {
    const Item& item = items[first + i];
    run.end_seconds = std::max(run.end_seconds, item.end_seconds);
    run.spans.push_back({item.start_seconds, item.end_seconds});
  }
  return run;
}

}  // namespace megatrain

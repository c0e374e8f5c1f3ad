#include "engine/pipeline/simulated_executor.h"

#include <algorithm>

namespace megatrain {

double WorkSeconds(const LayerWork& work, const HardwareProfile& profile) {
  const double running =
      work.product_flops / profile.product_flops_per_second +
      work.attention_forward_flops / profile.attention_forward_flops_per_second +
      work.attention_backward_flops / profile.attention_backward_flops_per_second +
      work.device_bytes / profile.device_bytes_per_second;
  return std::max(running, work.launches * profile.launch_seconds);
}

double OpSeconds(const Op& op, const HardwareProfile& profile) {
  const double link = static_cast<double>(op.h2d_bytes) / profile.h2d_bytes_per_second +
                      static_cast<double>(op.d2h_bytes) / profile.d2h_bytes_per_second;
  const double bytes = static_cast<double>(op.bytes);
  switch (op.lane) {
    case Lane::kH2D:
      return bytes / profile.h2d_bytes_per_second;
    case Lane::kCompute:
      return link + WorkSeconds(op.work, profile);
    case Lane::kD2H:
      return bytes / profile.d2h_bytes_per_second;
    case Lane::kDeviceUpdate0:
    case Lane::kDeviceUpdate1:
      return link + bytes / profile.device_bytes_per_second;
    case Lane::kUpdate:
      return bytes / profile.update_bytes_per_second;
    case Lane::kIo:
      return bytes / profile.disk_bytes_per_second;
  }
  return 0;
}

std::array<double, SimulatedExecutor::kParts> SimulatedExecutor::PartsOf(const Op& op) const {
  const double seconds = OpSeconds(op, profile_);
  if (op.lane == Lane::kH2D) return {seconds, 0, 0};
  if (op.lane == Lane::kD2H) return {0, 0, seconds};
  const double down = static_cast<double>(op.h2d_bytes) / profile_.h2d_bytes_per_second;
  const double up = static_cast<double>(op.d2h_bytes) / profile_.d2h_bytes_per_second;
  return {down, seconds - down - up, up};
}

// Runs items from time 0 on, each queue in its order.
struct SimulatedExecutor::Clock {
  explicit Clock(std::vector<Item>* all) : items(*all) {
    for (Item& item : items) queues[item.queue].push_back(&item);
  }

  void Run() {
    while (true) {
      while (Begin() || Finish()) {
      }
      if (!Advance()) return;
    }
  }

  // Begins what waits for nothing any more; false if nothing does.
  bool Begin() {
    bool any = false;
    for (int queue = 0; queue < kLanes; ++queue) {
      if (running[queue] != nullptr || next[queue] == queues[queue].size()) continue;
      Item* const item = queues[queue][next[queue]];
      bool ready = true;
      for (int lane = 0; lane < kLanes; ++lane) ready &= done[lane] >= item->waits[lane];
      if (!ready) continue;
      item->start_seconds = now;
      part[queue] = 0;
      running[queue] = item;
      ++next[queue];
      any = true;
    }
    return any;
  }

  // Takes what is over to its next part, or ends it; false if nothing is.
  bool Finish() {
    bool any = false;
    for (int queue = 0; queue < kLanes; ++queue) {
      Item* const item = running[queue];
      if (item == nullptr) continue;
      while (part[queue] < kParts && item->left[part[queue]] <= 0) ++part[queue];
      if (part[queue] < kParts) continue;
      item->end_seconds = now;
      running[queue] = nullptr;
      ++done[item->lane];
      any = true;
    }
    return any;
  }

  // Lets time pass until a part is over; false if nothing runs.
  bool Advance() {
    std::array<int, kParts> sharing = {};
    for (int queue = 0; queue < kLanes; ++queue) {
      if (running[queue] != nullptr) ++sharing[part[queue]];
    }
    sharing[kInside] = 1;
    double passed = -1;
    for (int queue = 0; queue < kLanes; ++queue) {
      if (running[queue] == nullptr) continue;
      const double seconds = running[queue]->left[part[queue]] * sharing[part[queue]];
      if (passed < 0 || seconds < passed) passed = seconds;
    }
    if (passed < 0) return false;
    for (int queue = 0; queue < kLanes; ++queue) {
      if (running[queue] == nullptr) continue;
      double& left = running[queue]->left[part[queue]];
      // What ends now ends wholly, whatever the rounding.
      const double rest = left - passed / sharing[part[queue]];
      left = rest > 1e-12 * passed ? rest : 0;
    }
    now += passed;
    return true;
  }

  std::vector<Item>& items;
  std::array<std::vector<Item*>, kLanes> queues;
  std::array<size_t, kLanes> next = {};
  std::array<Item*, kLanes> running = {};
  std::array<int, kLanes> part = {};
  LaneCounts done = {};
  double now = 0;
};

SimulatedExecutor::Run SimulatedExecutor::Submit(const Schedule& schedule) {
  const size_t first = items_.size();
  Run run;
  for (const Op& op : schedule.ops) {
    Item item;
    item.lane = item.queue = static_cast<int>(op.lane);
    if (profile_.update_shares_compute && op.lane == Lane::kUpdate) {
      item.queue = static_cast<int>(Lane::kCompute);
    }
    item.waits = tracker_.Add(op);
    item.left = PartsOf(op);
    run.busy_seconds[item.lane] += OpSeconds(op, profile_);
    run.h2d_seconds += item.left[kDown];
    run.d2h_seconds += item.left[kUp];
    items_.push_back(item);
  }
  std::vector<Item> items = items_;
  Clock(&items).Run();
  run.spans.reserve(schedule.ops.size());
  for (size_t i = 0; i < schedule.ops.size(); ++i) {
    const Item& item = items[first + i];
    const Op& op = schedule.ops[i];
    run.end_seconds = std::max(run.end_seconds, item.end_seconds);
    run.spans.push_back({op.kind, op.lane, op.tile, item.start_seconds, item.end_seconds});
  }
  return run;
}

}  // namespace megatrain

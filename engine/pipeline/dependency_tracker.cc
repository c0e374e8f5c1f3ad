#include "engine/pipeline/dependency_tracker.h"

#include <algorithm>

namespace megatrain {

LaneCounts DependencyTracker::Add(const Op& op) {
  const int lane = static_cast<int>(op.lane);
  LaneCounts waits = {};
  auto wait_for_writer = [&](const History& history) {
    if (history.writer_lane < 0) return;
    int64_t& wait = waits[history.writer_lane];
    wait = std::max(wait, history.writer);
  };
  for (const Resource& resource : op.reads) wait_for_writer(history_[Key(resource)]);
  for (const Resource& resource : op.writes) {
    const History& history = history_[Key(resource)];
    wait_for_writer(history);
    for (int l = 0; l < kLanes; ++l) waits[l] = std::max(waits[l], history.readers[l]);
  }
  waits[lane] = 0;

  const int64_t number = ++counts_[lane];
  for (const Resource& resource : op.reads) history_[Key(resource)].readers[lane] = number;
  for (const Resource& resource : op.writes) {
    History& history = history_[Key(resource)];
    history.writer_lane = lane;
    history.writer = number;
    history.readers = {};
  }
  return waits;
}

}  // namespace megatrain

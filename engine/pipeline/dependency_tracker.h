// DependencyTracker derives which operations each operation must wait for, from the resources that
// it reads and writes. Operations are given in serial order. An operation waits for the last writer
// of each resource that it reads (read-after-write), and for the last writer and all later readers
// of each resource that it writes (write-after-write, write-after-read). One tracker sees all
// schedules of an executor, so the waits reach across steps. Not thread-safe.
//
// Lanes run in order, so waiting for operation n of a lane covers all before it. One number for
// each lane is therefore enough, and none is needed for the operation's own lane.
#ifndef MEGATRAIN_ENGINE_PIPELINE_DEPENDENCY_TRACKER_H_
#define MEGATRAIN_ENGINE_PIPELINE_DEPENDENCY_TRACKER_H_

#include <array>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {

// A number of operations for each lane, counted from the first that was added.
using LaneCounts = std::array<int64_t, kLanes>;

class DependencyTracker {
 public:
  // Adds the next operation in serial order. Returns for each lane how many of its operations must
  // be done before this one; 0 for none, and for the operation's own lane.
  LaneCounts Add(const Op& op);

  // Returns the number of operations of each lane so far.
  const LaneCounts& counts() const { return counts_; }

 private:
  struct History {
    int writer_lane = -1;
    int64_t writer = 0;
    LaneCounts readers = {};  // since the last write
  };
  static uint64_t Key(const Resource& resource) {
    return static_cast<uint64_t>(resource.kind) << 32 | static_cast<uint32_t>(resource.index);
  }

  LaneCounts counts_ = {};
  absl::flat_hash_map<uint64_t, History> history_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_DEPENDENCY_TRACKER_H_

// Derives from the resources of operations, given in serial order, what each must wait for: the
// last writer of what it reads (read-after-write), the last writer and all later readers of what it
// writes (write-after-write, write-after-read). Works across steps: one tracker sees every schedule
// that an executor gets.
//
// Lanes run in order, so a wait for operation n of a lane covers all before it: one number a lane
// is enough, and none is needed for the operation's own lane.
#ifndef MEGATRAIN_ENGINE_PIPELINE_DEPENDENCY_TRACKER_H_
#define MEGATRAIN_ENGINE_PIPELINE_DEPENDENCY_TRACKER_H_

#include <array>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "engine/pipeline/schedule.h"

namespace megatrain {

// Operations of each lane that must be done first; counts from 1, 0 = none.
using LaneCounts = std::array<int64_t, kLanes>;

class DependencyTracker {
 public:
  // Takes the next operation in serial order. Returns what it waits for.
  LaneCounts Add(const Op& op);

  // Operations of each lane so far.
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

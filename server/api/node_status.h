// The state of the daemon and its machine, for NodeService and the metrics page.
#ifndef MEGATRAIN_SERVER_API_NODE_STATUS_H_
#define MEGATRAIN_SERVER_API_NODE_STATUS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/host/hardware_rates.h"

namespace megatrain {

struct NodeStatus {
  struct Device {
    std::string name;         // HostDevices::Name
    std::string description;  // for people
    bool busy = false;        // a job has it

    bool operator==(const Device&) const = default;
  };
  enum class State {
    kStarting,  // the pool is being pinned
    kReady,
    kStopping,
  };
  State state = State::kStarting;
  std::string daemon_version;
  std::string hostname;
  absl::Time started;
  std::vector<Device> devices;  // at least one
  int64_t pool_bytes = 0;
  int64_t pool_pinned_bytes = 0;
  int64_t pool_used_bytes = 0;
  int64_t disk_bytes = 0;  // of the state directory's file system
  int64_t disk_free_bytes = 0;
  int threads = 0;
  HardwareRates rates{};  // zeros until they are measured
  int queued_jobs = 0, active_jobs = 0, paused_jobs = 0;

  bool operator==(const NodeStatus&) const = default;
};

// Returns the state now. Called from any thread, by several at once; must return soon.
using NodeStatusReader = std::function<NodeStatus()>;

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_NODE_STATUS_H_

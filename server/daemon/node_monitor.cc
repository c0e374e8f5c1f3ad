#include "server/daemon/node_monitor.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "server/base/version.h"

namespace megatrain {

NodeMonitor::NodeMonitor(const EngineHost* host, const JobTable* jobs, std::string state_directory)
    : host_(host), jobs_(jobs), state_directory_(std::move(state_directory)) {
  fixed_.daemon_version = kVersion;
  char hostname[256] = {};
  if (gethostname(hostname, sizeof(hostname) - 1) == 0) fixed_.hostname = hostname;
  fixed_.started = absl::Now();
  for (int i = 0; i < host->devices().count; ++i) {
    fixed_.devices.push_back({host->devices().Name(i), host->DescribeDevice(i)});
  }
  fixed_.threads = host->threads();
}

void NodeMonitor::SetPinning(int64_t pinned, int64_t capacity) {
  pinned_ = pinned;
  capacity_ = capacity;
}

NodeStatus NodeMonitor::Read() const {
  NodeStatus status = fixed_;
  status.state = state_;
  status.rates = host_->rates();
  const PoolUsage pool = host_->pool_usage();
  if (pool.capacity > 0) {
    status.pool_bytes = pool.capacity;
    status.pool_pinned_bytes = pool.capacity;
    status.pool_used_bytes = pool.capacity - pool.free_bytes;
  } else {
    status.pool_bytes = capacity_;
    status.pool_pinned_bytes = pinned_;
  }
  struct statvfs disk = {};
  if (statvfs(state_directory_.c_str(), &disk) == 0) {
    status.disk_bytes = static_cast<int64_t>(disk.f_blocks) * static_cast<int64_t>(disk.f_frsize);
    status.disk_free_bytes =
        static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  }
  for (const JobPtr& job : jobs_->Live()) {
    if (!IsActive(job->state)) continue;
    for (NodeStatus::Device& device : status.devices) {
      device.busy = device.busy || std::find(job->devices.begin(), job->devices.end(),
                                             device.name) != job->devices.end();
    }
  }
  const JobCounts jobs = jobs_->Counts();
  status.queued_jobs = jobs.queued;
  status.active_jobs = jobs.active;
  status.paused_jobs = jobs.paused;
  return status;
}

}  // namespace megatrain

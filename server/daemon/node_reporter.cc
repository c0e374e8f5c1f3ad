#include "server/daemon/node_reporter.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "server/api/conversion.h"
#include "server/api/resource_name.h"
#include "server/base/version.h"
#include "server/transport/error_status.h"

namespace megatrain {
namespace {

void SetRates(const HardwareRates& measured, v1::MeasuredRates* rates) {
  rates->set_fp32_flops_per_second(measured.fp32.matmul_flops_per_second);
  rates->set_bf16_flops_per_second(measured.bf16.matmul_flops_per_second);
  rates->set_h2d_bytes_per_second(measured.h2d_bytes_per_second);
  rates->set_d2h_bytes_per_second(measured.d2h_bytes_per_second);
  rates->set_fp32_update_bytes_per_second(measured.fp32.update_bytes_per_second);
  rates->set_bf16_update_bytes_per_second(measured.bf16.update_bytes_per_second);
  rates->set_h2d_beside_d2h_bytes_per_second(measured.h2d_beside_d2h_bytes_per_second);
  rates->set_d2h_beside_h2d_bytes_per_second(measured.d2h_beside_h2d_bytes_per_second);
  rates->set_host_memory_bytes_per_second(measured.host_memory_bytes_per_second);
}

}  // namespace

NodeReporter::NodeReporter(const EngineHost* host, const JobTable* jobs,
                           std::string state_directory)
    : host_(host), jobs_(jobs), state_directory_(std::move(state_directory)) {
  fixed_.set_name(kNodeName);
  fixed_.set_daemon_version(kVersion);
  char hostname[256] = {};
  if (gethostname(hostname, sizeof(hostname) - 1) == 0) fixed_.set_hostname(ValidUtf8(hostname));
  *fixed_.mutable_start_time() = ToTimestamp(absl::Now());
  for (int i = 0; i < host->devices().count; ++i) {
    v1::Device* const device = fixed_.add_devices();
    device->set_id(host->devices().Name(i));
    device->set_description(ValidUtf8(host->DescribeDevice(i)));
    device->set_memory_bytes(host->DeviceMemoryBytes(i));
  }
  fixed_.set_threads(host->threads());
}

void NodeReporter::SetPinning(int64_t pinned, int64_t capacity) {
  pinned_ = pinned;
  capacity_ = capacity;
}

v1::Node NodeReporter::Read() const {
  v1::Node node = fixed_;
  node.set_state(state_);
  if (const HardwareRates rates = host_->rates(); rates.known()) {
    SetRates(rates, node.mutable_rates());
  }
  const PoolUsage pool = host_->pool_usage();
  const bool pinned = pool.capacity > 0;
  node.mutable_host_pool()->set_size_bytes(pinned ? pool.capacity : capacity_.load());
  node.mutable_host_pool()->set_pinned_bytes(pinned ? pool.capacity : pinned_.load());
  if (pinned) node.mutable_host_pool()->set_used_bytes(pool.capacity - pool.free_bytes);
  struct statvfs info = {};
  v1::Disk* const disk = node.mutable_state_disk();
  if (statvfs(state_directory_.c_str(), &info) == 0) {
    disk->set_size_bytes(static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize));
    disk->set_free_bytes(static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize));
  }
  for (const JobPtr& job : jobs_->Live()) {
    if (!IsActive(job->state)) continue;
    for (v1::Device& device : *node.mutable_devices()) {
      if (absl::c_linear_search(job->devices, device.id())) device.set_busy(true);
    }
  }
  if (node.devices_size() > 0) *node.mutable_device() = node.devices(0);
  const JobCounts jobs = jobs_->Counts();
  node.mutable_jobs()->set_queued(jobs.queued);
  node.mutable_jobs()->set_running(jobs.active);
  node.mutable_jobs()->set_paused(jobs.paused);
  return node;
}

}  // namespace megatrain

#include "engine/session.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/memory/system_memory.h"

namespace megatrain {

int AvailableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

absl::StatusOr<Session> OpenSession(const JobSpec::Engine& engine) {
  if (engine.device != "auto" && engine.device != "cpu") {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.device: '", engine.device, "' is not in this build; use cpu or auto"));
  }
  Session session;
  session.threads = engine.threads > 0 ? static_cast<int>(engine.threads) : AvailableProcessors();
  const int update = static_cast<int>(engine.update_threads);
  if (update >= session.threads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine.update_threads: ", update, " leaves none of the ", session.threads,
        " threads for compute; use at most ", session.threads - 1, ", or 0 to share them"));
  }
  session.compute_pool = std::make_unique<ThreadPool>(session.threads - update);
  if (update > 0) session.own_update_pool = std::make_unique<ThreadPool>(update);
  CpuDeviceOptions options;
  options.link_gigabytes_per_second = engine.link_gigabytes_per_second;
  session.device = CreateCpuDevice(session.compute_pool.get(), options);
  MT_ASSIGN_OR_RETURN(session.budget.host_bytes, AvailableMemoryBytes());
  return session;
}

}  // namespace megatrain

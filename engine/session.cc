#include "engine/session.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/device/cpu/cpu_device.h"

namespace megatrain {

int AvailableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

absl::Status CheckDevice(const std::string& key, const std::string& device) {
  if (device == "auto" || device == "cpu") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": '", device, "' is not in this build; use cpu or auto"));
}

absl::StatusOr<SessionSettings> ChooseSession(const JobSpec::Engine& engine,
                                              const std::string& host_device,
                                              int host_threads_max) {
  MT_RETURN_IF_ERROR(CheckDevice("engine.device", engine.device));
  MT_RETURN_IF_ERROR(CheckDevice("device", host_device));
  SessionSettings settings;
  settings.threads = engine.threads > 0     ? static_cast<int>(engine.threads)
                     : host_threads_max > 0 ? host_threads_max
                                            : AvailableProcessors();
  if (host_threads_max > 0) settings.threads = std::min(settings.threads, host_threads_max);
  settings.update_threads = static_cast<int>(engine.update_threads);
  if (settings.update_threads >= settings.threads) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.update_threads: ", settings.update_threads, " leaves none of the ",
                     settings.threads, " threads for compute; use at most ", settings.threads - 1,
                     ", or 0 to share them"));
  }
  settings.link_gigabytes_per_second = engine.link_gigabytes_per_second;
  return settings;
}

absl::StatusOr<std::shared_ptr<const Session>> OpenSession(const SessionSettings& settings) {
  auto session = std::make_shared<Session>();
  session->settings = settings;
  const int update = settings.update_threads;
  session->compute_pool = std::make_unique<ThreadPool>(settings.threads - update);
  if (update > 0) session->own_update_pool = std::make_unique<ThreadPool>(update);
  CpuDeviceOptions options;
  options.link_gigabytes_per_second = settings.link_gigabytes_per_second;
  session->device = CreateCpuDevice(session->compute_pool.get(), options);
  return session;
}

}  // namespace megatrain

#include "engine/host/session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/device/cpu/cpu_device.h"

namespace megatrain {

namespace {

absl::Status OfTheCpuAlone(const char* key) {
  return absl::InvalidArgumentError(
      absl::StrCat("engine.", key, ": has a meaning on the cpu device alone; leave it 0"));
}

// Returns all processors, beginning with the one of number `first`, so that ranks have different
// ones.
std::vector<Processor> ProcessorsFrom(int first) {
  std::vector<Processor> processors = AllowedProcessors();
  if (processors.empty()) return processors;
  std::rotate(processors.begin(), processors.begin() + first % static_cast<int>(processors.size()),
              processors.end());
  return processors;
}

}  // namespace

absl::StatusOr<SessionSettings> ChooseSession(const JobSpec::Engine& engine,
                                              const HostDevices& host, int threads_max,
                                              const std::vector<int>& on) {
  MT_ASSIGN_OR_RETURN(const DeviceClaim claim, ClaimDevices(engine.device, engine.devices, host));
  const bool is_cpu = host.first == kCpuDeviceId;
  SessionSettings settings;
  settings.device = host.first;
  settings.devices = is_cpu && engine.devices > 0 ? static_cast<int>(engine.devices) : claim.count;
  settings.on = on;
  for (int i = 0; on.empty() && i < claim.count; ++i) {
    settings.on.push_back(std::max(0, claim.first) + i);
  }
  constexpr int kCpuDevicesMax = 64;
  if (is_cpu && settings.devices > kCpuDevicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.devices: the cpu is divided into at most ", kCpuDevicesMax,
                     " devices, not ", settings.devices));
  }
  if (!is_cpu && engine.link_gigabytes_per_second > 0) {
    return OfTheCpuAlone("link_gigabytes_per_second");
  }
  if (!is_cpu && engine.update_threads > 0) return OfTheCpuAlone("update_threads");
  const int all_threads = threads_max > 0 ? threads_max : AvailableProcessors();
  settings.device_threads = std::max(1, all_threads / std::max(claim.count, host.count));
  if (host.count > claim.count) threads_max = settings.device_threads * claim.count;
  settings.threads = engine.threads > 0 ? static_cast<int>(engine.threads)
                     : threads_max > 0  ? threads_max
                                        : all_threads;
  if (threads_max > 0) settings.threads = std::min(settings.threads, threads_max);
  settings.update_threads = static_cast<int>(engine.update_threads);
  if (settings.update_threads >= settings.threads ||
      settings.rank_update_threads() >= settings.rank_threads()) {
    const std::string of_devices =
        settings.devices > 1 ? absl::StrCat(" of ", settings.devices, " devices") : "";
    const int most =
        std::min(settings.threads, settings.rank_threads() * settings.devices) - settings.devices;
    return absl::InvalidArgumentError(
        absl::StrCat("engine.update_threads: ", settings.update_threads, " leaves none of the ",
                     settings.threads, " threads", of_devices, " for compute; use at most ",
                     std::max(0, most), ", or 0 to share them"));
  }
  settings.link_gigabytes_per_second = engine.link_gigabytes_per_second;
  return settings;
}

std::shared_ptr<const Session> OpenSession(const SessionSettings& settings,
                                           const std::vector<std::shared_ptr<Device>>& gpus,
                                           int first_processor) {
  auto session = std::make_shared<Session>();
  session->settings = settings;
  const int update = settings.rank_update_threads();
  for (int i = 0; i < settings.devices; ++i) {
    SessionRank& rank = session->ranks.emplace_back();
    // With a GPU the threads have the optimizer alone, which wants memory: each keeps to its
    // processor, and so to what is near to that.
    rank.compute_pool = std::make_unique<ThreadPool>(
        settings.rank_threads() - update,
        gpus.empty() ? std::vector<Processor>()
                     : ProcessorsFrom(first_processor + settings.on[static_cast<size_t>(i)] *
                                                            settings.device_threads));
    if (update > 0) rank.own_update_pool = std::make_unique<ThreadPool>(update);
    rank.updater = std::make_unique<AdamWUpdater>(update > 0 ? rank.own_update_pool.get()
                                                             : rank.compute_pool.get());
    if (!gpus.empty()) {
      rank.device = gpus[static_cast<size_t>(settings.on[static_cast<size_t>(i)])];
      continue;
    }
    CpuDeviceOptions options;
    options.link_gigabytes_per_second = settings.link_gigabytes_per_second;
    rank.device = CreateCpuDevice(rank.compute_pool.get(), options);
  }
  return session;
}

}  // namespace megatrain

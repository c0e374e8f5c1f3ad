// What every use of the engine needs of the machine beside memory: threads and the device.
#ifndef MEGATRAIN_ENGINE_HOST_SESSION_H_
#define MEGATRAIN_ENGINE_HOST_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/host/choose_device.h"
#include "engine/job/job_spec.h"
#include "engine/optim/adamw_updater.h"

namespace megatrain {

struct SessionSettings {
  std::string device = kCpuDeviceId;
  int threads = 1;         // all: compute's and, if set apart, the optimizer's
  int update_threads = 0;  // of them set apart for the optimizer
  double link_gigabytes_per_second = 0;

  friend bool operator==(const SessionSettings&, const SessionSettings&) = default;
};

struct Session {
  SessionSettings settings;
  std::unique_ptr<ThreadPool> compute_pool;
  std::unique_ptr<ThreadPool> own_update_pool;  // null: the optimizer shares compute's threads
  std::shared_ptr<Device> device;               // the cpu device: this session's own

  // AdamW on own_update_pool, or on compute_pool. It stays tuned from one job to the next.
  std::unique_ptr<AdamWUpdater> updater;
};

// What a job gets on a host whose device is `host_device` (an id, as ChosenDevice's) and, if above
// 0, has at most so many threads. InvalidArgument for a device that is not the host's, settings of
// the cpu device on another, or thread counts that contradict each other.
absl::StatusOr<SessionSettings> ChooseSession(const JobSpec::Engine& engine,
                                              const std::string& host_device, int host_threads_max);

// Starts the threads, and sets up the cpu device if `gpu` is null. REQUIRES: `gpu` is the device
// that the settings name.
absl::StatusOr<std::shared_ptr<const Session>> OpenSession(const SessionSettings& settings,
                                                           std::shared_ptr<Device> gpu);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_SESSION_H_

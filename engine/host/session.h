// Session: the threads and the devices that a job uses. Each device with its part of the threads is
// a rank of the job.
#ifndef MEGATRAIN_ENGINE_HOST_SESSION_H_
#define MEGATRAIN_ENGINE_HOST_SESSION_H_

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/host/host_devices.h"
#include "engine/job/job_spec.h"
#include "engine/optim/adamw_updater.h"

namespace megatrain {

// The devices and threads of a session.
struct SessionSettings {
  std::string device = kCpuDeviceId;  // HostDevices::first
  int devices = 1;                    // that many GPUs, or parts of the cpu
  std::vector<int> on = {0};          // the numbers of the host's devices that it has, ascending
  // All threads of all ranks, including update_threads. What does not divide evenly among the ranks
  // is left out. A rank has at least one, or two with update_threads, even if that makes more in
  // all.
  int threads = 1;
  // The threads that each of the host's devices may have. Threads of a GPU keep to processors, and
  // device number n begins n * device_threads processors after device number 0.
  int device_threads = 1;
  int update_threads = 0;  // threads for the optimizer alone; 0 if it shares the others
  double link_gigabytes_per_second = 0;  // cpu device; 0 = unthrottled

  // Return the threads of one rank: all of them, and of these the ones for the optimizer alone.
  int rank_threads() const { return std::max(update_threads > 0 ? 2 : 1, threads / devices); }
  int rank_update_threads() const {
    return update_threads > 0 ? std::max(1, update_threads / devices) : 0;
  }

  friend bool operator==(const SessionSettings&, const SessionSettings&) = default;
};

// A device and its share of the threads.
struct SessionRank {
  std::unique_ptr<ThreadPool> compute_pool;
  std::unique_ptr<ThreadPool> own_update_pool;  // null if the optimizer uses compute_pool
  std::shared_ptr<Device> device;               // a cpu device is this session's own

  // Runs AdamW on own_update_pool or compute_pool. It stays tuned from one job to the next.
  std::unique_ptr<AdamWUpdater> updater;
};

struct Session {
  SessionSettings settings;
  std::vector<SessionRank> ranks;  // settings.devices of them

  // Returns rank 0, which also does the work outside of steps.
  const SessionRank& first() const { return ranks.front(); }
};

// Returns the settings of a job's session on the devices `on` of a host, or on the first ones that
// the job may have if `on` is empty. The host limits jobs to `threads_max` threads, of which each
// of its devices has an equal part. With 0 only jobs on some of several devices are limited, to
// their part of the processors. A job that asks for more threads gets the limit. Returns the errors
// of ClaimDevices. Returns InvalidArgument for settings of the cpu device on another one, for more
// than 64 cpu devices, or if engine.update_threads leaves a device no thread for compute. REQUIRES:
// `on` is empty or has as many devices as the job claims.
absl::StatusOr<SessionSettings> ChooseSession(const JobSpec::Engine& engine,
                                              const HostDevices& host, int threads_max,
                                              const std::vector<int>& on = {});

// Starts the threads and, if `gpus` is empty, creates the cpu devices. `first_processor` is the
// index in AllowedProcessors of the processor with which GPU number 0 of the host begins. REQUIRES:
// `gpus` are all of the host's by number, or empty if its device is the cpu; `settings` are of
// ChooseSession.
std::shared_ptr<const Session> OpenSession(const SessionSettings& settings,
                                           const std::vector<std::shared_ptr<Device>>& gpus,
                                           int first_processor = 0);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_SESSION_H_

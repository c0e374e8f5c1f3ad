// What every use of the engine needs of the machine beside memory: threads and the device.
#ifndef MEGATRAIN_ENGINE_SESSION_H_
#define MEGATRAIN_ENGINE_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/job/job_spec.h"

namespace megatrain {

struct SessionSettings {
  int threads = 1;         // all: compute's and, if set apart, the optimizer's
  int update_threads = 0;  // of them set apart for the optimizer
  double link_gigabytes_per_second = 0;

  friend bool operator==(const SessionSettings&, const SessionSettings&) = default;
};

struct Session {
  SessionSettings settings;
  std::unique_ptr<ThreadPool> compute_pool;
  std::unique_ptr<ThreadPool> own_update_pool;  // null: the optimizer shares compute's threads
  std::unique_ptr<Device> device;

  ThreadPool* update_pool() const {
    return own_update_pool != nullptr ? own_update_pool.get() : compute_pool.get();
  }
};

// Processors this process may use.
int AvailableProcessors();

// InvalidArgument, naming `key`, for a device that this build has not.
absl::Status CheckDevice(const std::string& key, const std::string& device);

// What a job gets on a host with this device and, if above 0, at most so many threads.
// InvalidArgument for a device that is not the host's, or thread counts that contradict each other.
absl::StatusOr<SessionSettings> ChooseSession(const JobSpec::Engine& engine,
                                              const std::string& host_device, int host_threads_max);

// Starts the threads and sets up the device.
absl::StatusOr<std::shared_ptr<const Session>> OpenSession(const SessionSettings& settings);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_SESSION_H_

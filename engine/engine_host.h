// What of the machine outlives jobs: threads, the device, and the pool of host memory. A process
// has one. `run` gives it one job; the daemon reserves the whole pool first and then gives it many.
//
// Thread safety: all methods from any thread. Jobs lease from the pool side by side; how many run
// at a time is the caller's choice.
#ifndef MEGATRAIN_ENGINE_ENGINE_HOST_H_
#define MEGATRAIN_ENGINE_ENGINE_HOST_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/hardware_rates.h"
#include "engine/job/job_spec.h"
#include "engine/memory/host_pool.h"

namespace megatrain {

struct Session;

struct EngineHostOptions {
  std::string device = "auto";  // auto | cpu | cuda | cuda:N, as in a job
  // Threads of a job, at most; 0: the processors this process may use, and no limit on a job that
  // asks for more.
  int threads = 0;
  FileSystem* files = PosixFileSystem();  // of runs that are given none; must outlive the host
};

// What a host offers a job when no other holds anything of it. A plain value: admission needs no
// host.
struct EngineBudget {
  std::string device = "auto";
  int threads = 0;                // as in EngineHostOptions
  int64_t pool_bytes = 0;         // the pool's capacity
  int64_t beside_pool_bytes = 0;  // host memory beside it: the process, the cpu device's arena
  HardwareRates rates{};          // of the machine; without them no times are predicted
};

struct PoolUsage {
  int64_t capacity = 0;
  int64_t free_bytes = 0;
  std::array<int64_t, kHostKinds> bytes = {};  // leased, by HostKind
};

class EngineHost {
 public:
  // InvalidArgument for a device there is not.
  static absl::StatusOr<std::unique_ptr<EngineHost>> Create(const EngineHostOptions& options);
  // REQUIRES: no job is left.
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  // 80% of what is free now: the default of a daemon's pool.
  static absl::StatusOr<int64_t> DefaultPoolBytes();

  // Reserves the pool and touches every page of it, once: minutes for a terabyte. `progress` is
  // called with the bytes touched so far; `cancelled` is asked now and then, and true gives
  // everything back and returns Cancelled. Both may be null. FailedPrecondition if there is a pool,
  // ResourceExhausted if there is not that much memory. A host that is given no pool reserves what
  // its first job plans.
  absl::Status ReservePool(int64_t bytes,
                           const std::function<void(int64_t touched, int64_t capacity)>& progress,
                           const std::function<bool()>& cancelled);

  // Measures the machine's rates: some tenths of a second, in which nothing else should run.
  // ResourceExhausted if there is no memory for it.
  absl::Status MeasureRates();
  // As measured; all 0 before.
  HardwareRates rates() const;

  // Of the pool; all zero while there is none.
  PoolUsage pool_usage() const;
  // As measured when the pool was reserved. REQUIRES: ReservePool succeeded.
  EngineBudget budget() const;
  int threads() const;  // of a job that asks for none
  std::string DescribeDevice() const;

  // For the engine.
  // Threads and device for a job with these settings: the last job's if they are the same, so that
  // a device is set up once. InvalidArgument for a device that is not this host's, or thread counts
  // that contradict each other.
  absl::StatusOr<std::shared_ptr<const Session>> OpenSession(const JobSpec::Engine& engine);
  // The pool, reserved now with `bytes` if there is none yet.
  absl::StatusOr<HostPool*> Pool(int64_t bytes);
  bool has_pool() const;
  FileSystem* files() const { return options_.files; }

 private:
  explicit EngineHost(const EngineHostOptions& options) : options_(options) {}

  const EngineHostOptions options_;
  mutable Mutex mutex_;
  // Guarded alone, so that usage can be read while pages are touched.
  Mutex reserve_mutex_;
  std::unique_ptr<HostPool> pool_ ABSL_GUARDED_BY(mutex_);
  int64_t beside_pool_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  HardwareRates rates_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Session> session_ ABSL_GUARDED_BY(mutex_);  // the last job's
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_ENGINE_HOST_H_

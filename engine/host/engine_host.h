// What of the machine outlives jobs: threads, the device, and the pool of host memory. A process
// has one. `run` gives it one job; the daemon reserves the whole pool first and then gives it many.
//
// Thread safety: all methods from any thread. Jobs lease from the pool side by side; how many run
// at a time is the caller's choice.
#ifndef MEGATRAIN_ENGINE_HOST_ENGINE_HOST_H_
#define MEGATRAIN_ENGINE_HOST_ENGINE_HOST_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/device/gpu_opener.h"
#include "engine/host/choose_device.h"
#include "engine/host/hardware_rates.h"
#include "engine/host/memory_budget.h"
#include "engine/job/job_spec.h"
#include "engine/memory/host_pool.h"

namespace megatrain {

struct Session;

struct EngineHostOptions {
  std::string device = "auto";        // auto | cpu | cuda | cuda:N, as in a job
  std::string device_key = "device";  // that said so, for messages
  GpuOpener open_gpu;                 // none: there are no GPUs
  // Threads of a job, at most; 0: the processors this process may use, and no limit on a job that
  // asks for more.
  int threads = 0;
  FileSystem* files = PosixFileSystem();  // of runs that are given none; must outlive the host
};

// What a host offers a job when no other holds anything of it. A plain value: admission needs no
// host.
struct EngineBudget {
  std::string device = kCpuDeviceId;  // as ChosenDevice's id
  int threads = 0;                    // as in EngineHostOptions
  MemoryBudget memory{};              // the whole pool, and what was free beside it
  HardwareRates rates{};              // of the machine; without them no times are predicted
};

// How far a reservation of the pool is, both in bytes of the pool.
using ReserveProgress = std::function<void(int64_t done, int64_t capacity)>;

struct PoolUsage {
  int64_t capacity = 0;
  int64_t free_bytes = 0;
  std::array<int64_t, kHostKinds> bytes = {};  // leased, by HostKind
};

class EngineHost {
 public:
  // Errors as ChooseDevice's.
  static absl::StatusOr<std::unique_ptr<EngineHost>> Create(const EngineHostOptions& options);
  // REQUIRES: no job is left.
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  // The default of a daemon's pool: 80% of what is free now, or all huge pages that are set aside
  // where they are more.
  static absl::StatusOr<int64_t> DefaultPoolBytes();

  // Reserves the pool, touches every page of it and, for a GPU, pins it, once: minutes for a
  // terabyte. `progress` is called as that goes on; `cancelled` is asked now and then, and true
  // gives everything back and returns Cancelled. Both may be null. FailedPrecondition if there is a
  // pool, ResourceExhausted if there is not that much memory or it cannot all be pinned. A host
  // that is given no pool reserves what its first job plans.
  absl::Status ReservePool(int64_t bytes, const ReserveProgress& progress,
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
  int threads() const;                                         // of a job that asks for none
  const std::string& device_id() const { return device_.id; }  // "cpu", "cuda:0"
  // Why `auto` took the cpu; empty where it did not.
  const std::string& why_cpu() const { return device_.why_cpu; }
  // For people; with the reason where auto took the cpu.
  std::string DescribeDevice() const;
  // "512 GiB in 1 GiB pages on NUMA node 0, pinned". REQUIRES: there is a pool.
  std::string DescribePool() const;

  // For the engine.
  // Threads and device for a job with these settings: the last job's if they are the same, so that
  // a device is set up once. InvalidArgument for a device that is not this host's, or thread counts
  // that contradict each other.
  absl::StatusOr<std::shared_ptr<const Session>> OpenSession(const JobSpec::Engine& engine);
  // The pool, reserved now with `bytes` if there is none yet, as ReservePool does.
  absl::StatusOr<HostPool*> Pool(int64_t bytes, const ReserveProgress& progress,
                                 const std::function<bool()>& cancelled);
  bool has_pool() const;
  // The memory that a job may plan with now: of the pool what is free, or all of it with
  // `without_others`, which is what the job would have if it were alone; what is free beside it; of
  // a device's own memory what is free. Without a pool yet, what one could have.
  absl::StatusOr<MemoryBudget> BudgetNow(bool without_others = false) const;
  FileSystem* files() const { return options_.files; }

 private:
  EngineHost(const EngineHostOptions& options, ChosenDevice device)
      : options_(options), device_(std::move(device)) {}
  absl::StatusOr<std::unique_ptr<HostPool>> MakePool(int64_t bytes, const ReserveProgress& progress,
                                                     const std::function<bool()>& cancelled) const;
  // What is free of the device's own memory. Nothing: the device lies in host memory.
  absl::StatusOr<std::optional<int64_t>> DeviceBytes() const;

  const EngineHostOptions options_;
  const ChosenDevice device_;
  mutable Mutex mutex_;
  // Guarded alone, so that usage can be read while pages are touched.
  Mutex reserve_mutex_;
  std::unique_ptr<HostPool> pool_ ABSL_GUARDED_BY(mutex_);
  MemoryBudget memory_ ABSL_GUARDED_BY(mutex_);  // when the pool was reserved
  HardwareRates rates_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Session> session_ ABSL_GUARDED_BY(mutex_);  // the last job's
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_ENGINE_HOST_H_

// EngineHost owns the parts of the machine that outlive jobs: threads, devices and the pool of host
// memory. A process has one host. `megatraind run` uses it for one job; the daemon reserves the
// whole pool first and then runs many jobs on it.
//
// Thread safety: all methods may be called from any thread. Jobs lease from the pool concurrently;
// the caller decides how many run at a time.
#ifndef MEGATRAIN_ENGINE_HOST_ENGINE_HOST_H_
#define MEGATRAIN_ENGINE_HOST_ENGINE_HOST_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/gpu_opener.h"
#include "engine/host/choose_device.h"
#include "engine/host/hardware_rates.h"
#include "engine/host/host_devices.h"
#include "engine/host/memory_budget.h"
#include "engine/job/job_spec.h"
#include "engine/memory/host_pool.h"

namespace megatrain {

struct Session;

struct EngineHostOptions {
  std::string device = "auto";        // auto, cpu, cuda or cuda:N, as in a job
  std::string device_key = "device";  // the configuration key of `device`, for messages
  GpuOpener open_gpu = nullptr;       // null if the program has no GPU support
  // The number of devices that jobs may have. GPUs begin with the one that `device` names: with
  // cuda:K they are K to K + devices - 1, or all from K on if `devices` is 0. The cpu is divided
  // into this many parts; 0 means 1.
  int devices = 1;
  NcclLoader load_nccl = nullptr;  // for jobs on several GPUs; null if the program has no NCCL
  // The most threads of a job. A job that asks for no number gets this many. 0 means no limit; a
  // job that asks for no number then gets as many as there are processors for this process. A job
  // on some of several devices has their part of these.
  int threads = 0;
  // The number of processes of a job on this machine, at least 1. They share its host memory
  // evenly.
  int sharers = 1;
  // The number of this process among them, which decides its GPU (GpuChoice::process).
  int process = 0;
  // The threads of GPUs keep to processors, from the one with this index in AllowedProcessors on.
  int first_processor = 0;
  FileSystem* files = PosixFileSystem();  // for runs without their own; must outlive the host
};

// The resources that a host offers to a job when no other job holds any. It is a plain value, so
// that a job can be admitted or planned without a host.
struct EngineBudget {
  HostDevices devices{};  // with their memory, where they have their own
  int threads = 0;        // as EngineHostOptions::threads
  // The whole pool, and the host memory that was free besides it. The device memory is that of the
  // device with the least.
  MemoryBudget memory{};
  HardwareRates rates{};  // needed to predict times; may be unmeasured
};

// Is told that `done` bytes of the pool's `capacity` bytes are reserved. With a GPU, touching a
// byte and pinning it count half each. It may be called from several threads, one at a time. `done`
// begins again at 0 if pages of one size are refused and smaller ones are tried.
using ReserveProgress = std::function<void(int64_t done, int64_t capacity)>;

// The bytes of the pool and their use.
struct PoolUsage {
  int64_t capacity = 0;
  int64_t free_bytes = 0;
  std::array<int64_t, kHostKinds> bytes = {};  // leased bytes by HostKind
};

class EngineHost {
 public:
  // Opens the devices. Reserves no memory. Returns the errors of ChooseDevice. REQUIRES:
  // options.devices >= 0.
  static absl::StatusOr<std::unique_ptr<EngineHost>> Create(const EngineHostOptions& options);
  // REQUIRES: no job runs, and no lease of the pool is left.
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  // The pool and the machine's rates.

  // Returns the default size of a daemon's pool: 80% of the memory that is free now, or
  // HostOffer::set_aside_bytes of huge pages if that is more. Returns the errors of
  // AvailableMemoryBytes.
  static absl::StatusOr<int64_t> DefaultPoolBytes();

  // Reserves a pool of `bytes` bytes, touches every page of it and, for a GPU, pins it. This takes
  // minutes for a terabyte. `progress` is called meanwhile. `cancelled` is called now and then, and
  // may be called from several threads at once. Once it returns true, everything is released and
  // the result is Cancelled. Both may be null and are used during the call only.
  //
  // Returns FailedPrecondition if there is a pool already, ResourceExhausted if there is not enough
  // free memory, the errors of Device::PinHost if it cannot all be pinned, and those of reading the
  // free memory of the machine and of the devices. After an error the host has no new pool. A host
  // without a pool reserves as much as its first job plans (see GetOrReservePool). REQUIRES:
  // bytes >= 0.
  absl::Status ReservePool(int64_t bytes, const ReserveProgress& progress,
                           const std::function<bool()>& cancelled);

  // Measures the machine's rates. It takes about two seconds, on a GPU about six, in which nothing
  // else should run, and for several GPUs as long as NCCL takes to start. If their exchange cannot
  // be measured, the rate between GPUs stays unknown. Returns ResourceExhausted if there is no
  // memory for it, and the errors of the device. After an error rates() is what it was. REQUIRES:
  // no job runs.
  absl::Status MeasureRates();
  // Returns the measured rates; all are 0 before MeasureRates succeeds.
  HardwareRates rates() const;

  // The state of the host.

  // Returns zeros while there is no pool.
  PoolUsage pool_usage() const;
  // Returns the budget, with memory as it was when ReservePool reserved the pool. REQUIRES:
  // ReservePool succeeded; a pool that GetOrReservePool() reserved is not in the budget.
  EngineBudget budget() const;
  int threads() const;  // the threads of a job on all devices that asks for no number
  // Returns the devices without their memory (HostDevices::bytes), which budget() tells.
  const HostDevices& devices() const { return devices_; }
  // Returns the bytes of a device's own memory; 0 if it uses host memory. REQUIRES: there is a
  // device of that number.
  int64_t DeviceMemoryBytes(int number) const;
  // Returns why EngineHostOptions::device `auto` chose the cpu; "" if it did not.
  const std::string& why_cpu() const { return device_.why_cpu; }
  // Describes a device for people, with why_cpu(). REQUIRES: there is a device of that number.
  std::string DescribeDevice(int number = 0) const;
  // Returns for example "512.00 GiB in 1 GiB pages on NUMA node 0, pinned". REQUIRES: there is a
  // pool.
  std::string DescribePool() const;

  // The methods from here on are for the engine's own use.

  // Returns the threads and the devices for a job with these settings, on the devices `on` as in
  // ChooseSession. The last session on them is reused if its settings are the same, so that threads
  // are started and the optimizer is tuned once. Returns the errors of ChooseSession, and
  // InvalidArgument for attention kernels that the device does not have. REQUIRES: as
  // ChooseSession.
  absl::StatusOr<std::shared_ptr<const Session>> OpenSession(const JobSpec::Engine& engine,
                                                             const std::vector<int>& on = {});
  // Returns the pool, which lives as long as the host; if there is one, `bytes` is ignored. If
  // there is none, first reserves one of `bytes` bytes as ReservePool does, with the same errors
  // but FailedPrecondition and those of reading the devices' free memory. It does not change
  // budget().
  absl::StatusOr<HostPool*> GetOrReservePool(int64_t bytes, const ReserveProgress& progress,
                                             const std::function<bool()>& cancelled);
  bool has_pool() const;
  // Returns the memory that a job on the devices `on` may plan with now:
  // - the free bytes of the pool, and these devices' part of the memory beside it, or all of that
  //   memory if GetOrReservePool() reserved the pool; without a pool, the memory that one could
  //   have;
  // - the least of their PlannableDeviceBytes.
  // The free memory of the machine is first divided by EngineHostOptions::sharers. If
  // `without_others` is true, the result is as if no other job had any of the pool or, on a host of
  // several devices, of these devices' part. Returns the errors of reading the machine's and the
  // devices' free memory. REQUIRES: there are devices of these numbers.
  absl::StatusOr<MemoryBudget> BudgetNow(const std::vector<int>& on,
                                         bool without_others = false) const;
  // Returns the bytes of device memory that a job may plan with now, for each of the devices `on`:
  // the free bytes less Device::ReserveBytes. The result is empty if devices use host memory.
  // Returns the errors of Device::FreeBytes. REQUIRES: there are devices of these numbers.
  absl::StatusOr<std::vector<int64_t>> PlannableDeviceBytes(const std::vector<int>& on) const;
  // Returns a sentence for people if the devices `on` have unequal memory free (IsUnequal), because
  // a plan uses the least on all. Returns "" if not, or if they use host memory. Returns the errors
  // of PlannableDeviceBytes. REQUIRES: there are devices of these numbers.
  absl::StatusOr<std::string> DescribeUnequalMemory(const std::vector<int>& on) const;
  // Loads NCCL. Returns FailedPrecondition if this program or machine has no NCCL that can be used.
  absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl() const;
  FileSystem* files() const { return options_.files; }

 private:
  EngineHost(const EngineHostOptions& options, ChosenDevice device);
  absl::StatusOr<std::unique_ptr<HostPool>> MakePool(int64_t bytes, const ReserveProgress& progress,
                                                     const std::function<bool()>& cancelled) const;
  // Undoes what MakePool has done with the devices.
  void Unpin(const HostPool& pool);
  // Returns what a job on so many devices may have of the memory beside the pool: of several
  // devices each has an equal part of what was free when the pool was reserved. `free_bytes` are
  // free now.
  int64_t BesidePool(int devices, int64_t free_bytes, bool without_others) const;
  std::vector<int> AllDevices() const;

  const EngineHostOptions options_;
  const ChosenDevice device_;
  const HostDevices devices_;
  mutable Mutex mutex_;
  // Held during a reservation, while mutex_ stays free so that usage can be read.
  Mutex reserve_mutex_;
  std::unique_ptr<HostPool> pool_ ABSL_GUARDED_BY(mutex_);
  MemoryBudget memory_ ABSL_GUARDED_BY(mutex_);                // at the reservation
  std::vector<int64_t> device_bytes_ ABSL_GUARDED_BY(mutex_);  // then too, by number
  HardwareRates rates_ ABSL_GUARDED_BY(mutex_);
  // The last jobs', no two on the same device.
  std::vector<std::shared_ptr<const Session>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_ENGINE_HOST_H_

#include "engine/engine_host.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/measure_hardware.h"
#include "engine/memory/system_memory.h"
#include "engine/session.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<EngineHost>> EngineHost::Create(const EngineHostOptions& options) {
  std::unique_ptr<EngineHost> host(new EngineHost(options));
  MT_RETURN_IF_ERROR(CheckDevice("device", options.device));
  return host;
}

EngineHost::~EngineHost() = default;

absl::StatusOr<int64_t> EngineHost::DefaultPoolBytes() {
  MT_ASSIGN_OR_RETURN(const int64_t free, AvailableMemoryBytes());
  return free / 5 * 4;
}

absl::Status EngineHost::ReservePool(
    int64_t bytes, const std::function<void(int64_t touched, int64_t capacity)>& progress,
    const std::function<bool()>& cancelled) {
  MutexLock reserve_lock(&reserve_mutex_);
  if (has_pool()) return absl::FailedPreconditionError("the host pool is reserved already");
  // Said before pages are touched: the kernel would end the process, not refuse.
  MT_ASSIGN_OR_RETURN(const int64_t free, AvailableMemoryBytes());
  if (bytes > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host_memory: the pool is to have ", FormatBytes(bytes), ", and ",
                     FormatBytes(free), " are free; 0 takes 80% of what is free"));
  }
  HostPoolOptions options;
  options.capacity = bytes;
  options.touch_threads = threads();
  options.progress = progress;
  options.cancelled = cancelled;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<HostPool> pool, HostPool::Create(options));
  MT_ASSIGN_OR_RETURN(const int64_t beside, AvailableMemoryBytes());
  MutexLock lock(&mutex_);
  pool_ = std::move(pool);
  beside_pool_bytes_ = beside;
  return absl::OkStatus();
}

absl::Status EngineHost::MeasureRates() {
  MT_ASSIGN_OR_RETURN(const HardwareRates rates, MeasureHardware(threads()));
  MutexLock lock(&mutex_);
  rates_ = rates;
  return absl::OkStatus();
}

HardwareRates EngineHost::rates() const {
  MutexLock lock(&mutex_);
  return rates_;
}

PoolUsage EngineHost::pool_usage() const {
  MutexLock lock(&mutex_);
  PoolUsage usage;
  if (pool_ == nullptr) return usage;
  usage.capacity = pool_->capacity();
  usage.free_bytes = pool_->free_bytes();
  for (int kind = 0; kind < kHostKinds; ++kind) {
    usage.bytes[kind] = pool_->bytes_in_use(static_cast<HostKind>(kind));
  }
  return usage;
}

EngineBudget EngineHost::budget() const {
  MutexLock lock(&mutex_);
  return {options_.device, options_.threads, pool_->capacity(), beside_pool_bytes_, rates_};
}

int EngineHost::threads() const {
  return options_.threads > 0 ? options_.threads : AvailableProcessors();
}

std::string EngineHost::DescribeDevice() const {
  return absl::StrCat("cpu, ", threads(), " threads");
}

absl::StatusOr<std::shared_ptr<const Session>> EngineHost::OpenSession(
    const JobSpec::Engine& engine) {
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(engine, options_.device, options_.threads));
  MutexLock lock(&mutex_);
  if (session_ == nullptr || !(session_->settings == settings)) {
    MT_ASSIGN_OR_RETURN(session_, megatrain::OpenSession(settings));
  }
  return session_;
}

absl::StatusOr<HostPool*> EngineHost::Pool(int64_t bytes) {
  {
    MutexLock lock(&mutex_);
    if (pool_ != nullptr) return pool_.get();
  }
  MutexLock reserve_lock(&reserve_mutex_);
  HostPoolOptions options;
  options.capacity = bytes;
  options.touch_threads = threads();
  MT_ASSIGN_OR_RETURN(std::unique_ptr<HostPool> pool, HostPool::Create(options));
  MutexLock lock(&mutex_);
  if (pool_ == nullptr) pool_ = std::move(pool);
  return pool_.get();
}

bool EngineHost::has_pool() const {
  MutexLock lock(&mutex_);
  return pool_ != nullptr;
}

}  // namespace megatrain

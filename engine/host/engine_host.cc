#include "engine/host/engine_host.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/host/measure_exchange.h"
#include "engine/host/measure_hardware.h"
#include "engine/host/session.h"
#include "engine/memory/host_offer.h"

namespace megatrain {

namespace {

// Checks this before pages are touched, because the kernel would then end the process and not
// refuse.
absl::Status CheckFree(int64_t bytes) {
  MT_ASSIGN_OR_RETURN(int64_t free, AvailableMemoryBytes());
  for (const int64_t page_bytes : {kGiantPageBytes, kHugePageBytes}) {
    if (HostPool::MayLieIn(page_bytes, bytes)) free = std::max(free, FreeHugePageBytes(page_bytes));
  }
  if (bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("host pool: it is to have ", FormatBytes(bytes),
                                                   ", and ", FormatBytes(free), " are free"));
}

// Returns nullopt for devices that use host memory.
std::optional<int64_t> LeastOf(const std::vector<int64_t>& bytes) {
  if (bytes.empty()) return std::nullopt;
  return *std::min_element(bytes.begin(), bytes.end());
}

}  // namespace

EngineHost::EngineHost(const EngineHostOptions& options, ChosenDevice device)
    : options_(options),
      device_(std::move(device)),
      devices_{device_.id, device_.gpus.empty() ? std::max(1, options.devices)
                                                : static_cast<int>(device_.gpus.size())} {}

std::vector<int> EngineHost::AllDevices() const {
  std::vector<int> all(static_cast<size_t>(devices_.count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

absl::StatusOr<std::unique_ptr<EngineHost>> EngineHost::Create(const EngineHostOptions& options) {
  MT_ASSIGN_OR_RETURN(ChosenDevice device,
                      ChooseDevice(options.device_key, options.device, options.open_gpu,
                                   {.count = options.devices, .process = options.process}));
  return std::unique_ptr<EngineHost>(new EngineHost(options, std::move(device)));
}

EngineHost::~EngineHost() {
  MutexLock lock(&mutex_);
  if (pool_ != nullptr) Unpin(*pool_);
}

void EngineHost::Unpin(const HostPool& pool) {
  // The first one has pinned it.
  for (auto gpu = device_.gpus.rbegin(); gpu != device_.gpus.rend(); ++gpu) {
    (*gpu)->UnpinHost(pool.data());
  }
}

absl::StatusOr<int64_t> EngineHost::DefaultPoolBytes() {
  MT_ASSIGN_OR_RETURN(const HostOffer offer, ReadHostOffer());
  return std::max(offer.free_bytes / 5 * 4, offer.set_aside_bytes);
}

absl::StatusOr<std::unique_ptr<HostPool>> EngineHost::MakePool(
    int64_t bytes, const ReserveProgress& progress, const std::function<bool()>& cancelled) const {
  Device* const gpu = device_.gpus.empty() ? nullptr : device_.gpus.front().get();
  // Touching the pages is all there is to do, or half of it.
  const int64_t parts = gpu != nullptr ? 2 : 1;
  HostPoolOptions options;
  options.capacity = bytes;
  options.touch_threads = threads();
  std::set<int> nodes;
  for (const std::shared_ptr<Device>& each : device_.gpus) nodes.insert(each->numa_node());
  if (!nodes.contains(-1)) options.numa_nodes = {nodes.begin(), nodes.end()};
  if (progress) {
    options.progress = [&](int64_t touched, int64_t capacity) {
      progress(touched / parts, capacity);
    };
  }
  options.cancelled = cancelled;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<HostPool> pool, HostPool::Create(options));
  const int64_t capacity = pool->capacity();
  if (gpu == nullptr || capacity == 0) return pool;
  MT_RETURN_IF_ERROR(gpu->PinHost(pool->data(), capacity, [&](int64_t pinned) {
    if (progress) progress(capacity / parts + pinned / parts, capacity);
    return cancelled && cancelled()
               ? absl::CancelledError("host pool: the reservation was abandoned")
               : absl::OkStatus();
  }));
  for (size_t i = 1; i < device_.gpus.size(); ++i) {
    device_.gpus[i]->ShareHostPin(pool->data(), capacity);
  }
  return pool;
}

absl::Status EngineHost::ReservePool(int64_t bytes, const ReserveProgress& progress,
                                     const std::function<bool()>& cancelled) {
  MutexLock reserve_lock(&reserve_mutex_);
  if (has_pool()) return absl::FailedPreconditionError("the host pool is reserved already");
  if (const absl::Status status = CheckFree(bytes); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("host_memory: ", status.message(),
                                     "; 0 takes 80% of it, or all huge pages if they are more"));
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<HostPool> pool, MakePool(bytes, progress, cancelled));
  absl::Cleanup unpin = [&] { Unpin(*pool); };
  MT_ASSIGN_OR_RETURN(const int64_t beside, AvailableMemoryBytes());
  MT_ASSIGN_OR_RETURN(std::vector<int64_t> device_bytes, PlannableDeviceBytes(AllDevices()));
  std::move(unpin).Cancel();
  MutexLock lock(&mutex_);
  pool_ = std::move(pool);
  memory_.SetPool(pool_->capacity(), beside);
  memory_.SetDevice(LeastOf(device_bytes));
  device_bytes_ = std::move(device_bytes);
  return absl::OkStatus();
}

absl::Status EngineHost::MeasureRates() {
  double exchange = 0;
  if (device_.gpus.size() > 1 && options_.load_nccl) {
    // A job on one GPU does without.
    exchange =
        MeasureExchange(device_.gpus, options_.load_nccl, kGpuMeasurement.copy_bytes).value_or(0);
  }
  // With all threads: what fewer of them reach follows from it.
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(JobSpec::Engine(), {devices_.first, 1}, options_.threads));
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Session> session,
                      devices_.count == 1 ? OpenSession(JobSpec::Engine())
                                          : megatrain::OpenSession(settings, device_.gpus,
                                                                   options_.first_processor));
  MT_ASSIGN_OR_RETURN(
      HardwareRates rates,
      MeasureHardware(*session, !device_.gpus.empty() ? kGpuMeasurement : kCpuMeasurement));
  rates.collective_bytes_per_second = exchange;
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
  EngineBudget budget = {devices_, options_.threads, memory_, rates_};
  budget.devices.bytes = device_bytes_;
  return budget;
}

int64_t EngineHost::BesidePool(int devices, int64_t free_bytes, bool without_others) const {
  MutexLock lock(&mutex_);
  if (devices_.count == 1 || memory_.host_bytes == 0) return free_bytes;
  const int64_t part = (memory_.host_bytes - memory_.pool_bytes) / devices_.count * devices;
  return without_others ? part : std::min(part, free_bytes);
}

absl::StatusOr<MemoryBudget> EngineHost::BudgetNow(const std::vector<int>& on,
                                                   bool without_others) const {
  MT_ASSIGN_OR_RETURN(HostOffer offer, ReadHostOffer());
  offer.free_bytes /= options_.sharers;
  offer.set_aside_bytes /= options_.sharers;
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> device_bytes, PlannableDeviceBytes(on));
  MemoryBudget budget;
  budget.SetDevice(LeastOf(device_bytes));
  if (has_pool()) {
    const PoolUsage usage = pool_usage();
    budget.SetPool(without_others ? usage.capacity : usage.free_bytes,
                   BesidePool(static_cast<int>(on.size()), offer.free_bytes, without_others));
  } else {
    budget.SetHost(offer);
  }
  return budget;
}

int EngineHost::threads() const {
  return options_.threads > 0 ? options_.threads : AvailableProcessors();
}

std::string EngineHost::DescribeDevice(int number) const {
  if (!device_.gpus.empty()) return device_.gpus[static_cast<size_t>(number)]->Describe();
  return absl::StrCat("cpu, ", std::max(1, threads() / devices_.count), " threads",
                      device_.why_cpu.empty() ? "" : absl::StrCat(" (", device_.why_cpu, ")"));
}

int64_t EngineHost::DeviceMemoryBytes(int number) const {
  return device_.gpus.empty() ? 0 : device_.gpus[static_cast<size_t>(number)]->MemoryBytes();
}

std::string EngineHost::DescribePool() const {
  MutexLock lock(&mutex_);
  return absl::StrCat(FormatBytesShort(pool_->capacity()), " in ", pool_->DescribePages(),
                      !device_.gpus.empty() ? ", pinned" : "");
}

absl::StatusOr<std::vector<int64_t>> EngineHost::PlannableDeviceBytes(
    const std::vector<int>& on) const {
  std::vector<int64_t> bytes;
  if (device_.gpus.empty()) return bytes;
  for (const int number : on) {
    const std::shared_ptr<Device>& gpu = device_.gpus[static_cast<size_t>(number)];
    MT_ASSIGN_OR_RETURN(const std::optional<int64_t> free, gpu->FreeBytes());
    if (!free.has_value()) return std::vector<int64_t>();
    bytes.push_back(std::max<int64_t>(0, *free - gpu->ReserveBytes()));
  }
  return bytes;
}

absl::StatusOr<std::string> EngineHost::DescribeUnequalMemory(const std::vector<int>& on) const {
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> bytes, PlannableDeviceBytes(on));
  if (bytes.empty() || !IsUnequal(bytes)) return "";
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  const auto text = [&](std::vector<int64_t>::const_iterator of) {
    return absl::StrCat(FormatBytesShort(*of), " (",
                        devices_.Name(on[static_cast<size_t>(of - bytes.begin())]), ")");
  };
  return absl::StrCat("the GPUs have unequal memory free, ", text(least), " to ", text(most),
                      ": the least is planned with");
}

absl::StatusOr<std::unique_ptr<NcclApi>> EngineHost::LoadNccl() const {
  if (options_.load_nccl == nullptr) {
    return absl::FailedPreconditionError(
        "several GPUs exchange by NCCL, which this program does not have");
  }
  absl::StatusOr<std::unique_ptr<NcclApi>> api = options_.load_nccl();
  if (api.ok()) return api;
  return absl::FailedPreconditionError(
      absl::StrCat("several GPUs exchange by NCCL: ", api.status().message()));
}

absl::StatusOr<std::shared_ptr<const Session>> EngineHost::OpenSession(
    const JobSpec::Engine& engine, const std::vector<int>& on) {
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(engine, devices_, options_.threads, on));
  MutexLock lock(&mutex_);
  const auto same = std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& session) {
    return session->settings == settings;
  });
  std::shared_ptr<const Session> session = same != sessions_.end() ? *same : nullptr;
  if (session == nullptr) {
    std::erase_if(sessions_, [&](const auto& other) {
      const std::vector<int>& its = other->settings.on;
      return std::find_first_of(its.begin(), its.end(), settings.on.begin(), settings.on.end()) !=
             its.end();
    });
    session = megatrain::OpenSession(settings, device_.gpus, options_.first_processor);
    sessions_.push_back(session);
  }
  if (const absl::Status status = session->first().device->CheckAttention(engine.attention);
      !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.attention: library: ", status.message(), "; write auto or own"));
  }
  return session;
}

absl::StatusOr<HostPool*> EngineHost::GetOrReservePool(int64_t bytes,
                                                       const ReserveProgress& progress,
                                                       const std::function<bool()>& cancelled) {
  MutexLock reserve_lock(&reserve_mutex_);
  {
    MutexLock lock(&mutex_);
    if (pool_ != nullptr) return pool_.get();
  }
  MT_RETURN_IF_ERROR(CheckFree(bytes));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<HostPool> pool, MakePool(bytes, progress, cancelled));
  MutexLock lock(&mutex_);
  pool_ = std::move(pool);
  return pool_.get();
}

bool EngineHost::has_pool() const {
  MutexLock lock(&mutex_);
  return pool_ != nullptr;
}

}  // namespace megatrain

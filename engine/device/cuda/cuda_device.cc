#include "engine/device/cuda/cuda_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/cuda/cuda_kernels.h"
#include "engine/device/cuda/cuda_status.h"
#include "engine/device/cuda/device_reserve.h"
#include "engine/device/cuda/pinned_ranges.h"
#include "engine/device/cuda/warm_up.h"
#include "engine/device/device_lost.h"

namespace megatrain {
namespace {

// The size of the pinned memory through which unpinned memory is copied.
constexpr int64_t kStagingBytes = int64_t{1} << 20;
constexpr size_t kPageBytes = 4096;

std::string Version(int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); }

void FormatWithPlace(std::string* out, const CudaLibrary& library) {
  absl::StrAppend(out, library.version.empty() ? "no " : "", library.name,
                  library.version.empty() ? "" : " ", library.version, " (", library.place, ")");
}

class CudaEvent : public Event {
 public:
  CudaEvent(CudaApi* api, int ordinal, void* event) : api_(api), ordinal_(ordinal), event_(event) {}
  ~CudaEvent() override {
    (void)api_->SetDevice(ordinal_);
    (void)api_->EventDestroy(event_);
  }
  void* get() const { return event_; }

 private:
  CudaApi* const api_;
  const int ordinal_;
  void* const event_;
};

class CudaMemory : public DeviceMemory {
 public:
  CudaMemory(CudaApi* api, int ordinal, void* data, int64_t bytes)
      : api_(api), ordinal_(ordinal), data_(data), bytes_(bytes) {}
  ~CudaMemory() override {
    (void)api_->SetDevice(ordinal_);
    (void)api_->Free(data_);
  }
  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  CudaApi* const api_;
  const int ordinal_;
  void* const data_;
  const int64_t bytes_;
};

CudaStream& Of(Stream& stream) { return static_cast<CudaStream&>(stream); }
CudaEvent& Of(Event& event) { return static_cast<CudaEvent&>(event); }

class CudaDevice : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaApi> api, int ordinal, CudaDeviceProperties properties, int driver,
             const CudaSwitches& switches)
      : api_(std::move(api)),
        ordinal_(ordinal),
        properties_(std::move(properties)),
        driver_(driver),
        switches_(switches),
        kernels_(api_.get(), ordinal, switches.kernels),
        pinned_(api_.get()) {}

  ~CudaDevice() override {
    (void)api_->SetDevice(ordinal_);
    if (staging_ == nullptr) return;
    pinned_.Unpin(staging_);
    std::free(staging_);
  }

  absl::Status Open() {
    MT_RETURN_IF_ERROR(Enter());
    MT_ASSIGN_OR_RETURN(const std::optional<int64_t> before, FreeBytes());
    MT_RETURN_IF_ERROR(api_->LoadLibraries(switches_));
    staging_ = std::aligned_alloc(kPageBytes, kStagingBytes);
    if (staging_ == nullptr) return absl::ResourceExhaustedError("cuda: no host memory");
    MT_RETURN_IF_ERROR(pinned_.Pin(staging_, kStagingBytes, nullptr));
    return api_->loads_lazily() && before.has_value() ? Load(*before) : absl::OkStatus();
  }

  std::string Describe() const override {
    return absl::StrCat(
        "cuda:", ordinal_, ", ", properties_.name, ", ", FormatBytesShort(properties_.memory_bytes),
        ", compute capability ", properties_.major, ".", properties_.minor, ", driver for CUDA ",
        Version(driver_), ", ", absl::StrJoin(api_->Libraries(), ", ", FormatWithPlace),
        DescribeSetAside(switches_),
        why_unknown_.empty() ? "" : absl::StrCat(", warming up failed (", why_unknown_, ")"),
        properties_.integrated ? ", in host memory" : "",
        properties_.host_page_tables ? ", coherent with the host" : "");
  }
  std::string Arithmetic(AttentionChoice attention) const override {
    std::string text =
        absl::StrCat("cuda, ", properties_.name, ", compute capability ", properties_.major, ".",
                     properties_.minor, ", ", properties_.multiprocessors, " multiprocessors");
    for (const CudaLibrary& library : api_->Libraries()) {
      const bool is_set_aside = library.name == kCudnn && attention == AttentionChoice::kOwn;
      if (library.version.empty() || is_set_aside) {
        absl::StrAppend(&text, ", no ", library.name);
      } else {
        absl::StrAppend(&text, ", ", library.name, " ", library.version);
      }
    }
    return text + DescribeSetAside(switches_);
  }
  std::string Uuid() const override { return properties_.uuid; }
  absl::Status CheckAttention(AttentionChoice attention) const override {
    if (attention != AttentionChoice::kLibrary) return absl::OkStatus();
    const CudaLibrary cudnn = api_->Libraries().back();
    if (!cudnn.version.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("there is no cuDNN: ", cudnn.place));
  }
  int numa_node() const override { return properties_.numa_node; }

  int64_t MemoryBytes() const override {
    return properties_.integrated ? 0 : properties_.memory_bytes;
  }

  absl::StatusOr<std::optional<int64_t>> FreeBytes() override {
    MT_RETURN_IF_ERROR(Enter());
    if (properties_.integrated) return std::nullopt;
    int64_t free_bytes = 0, total_bytes = 0;
    MT_RETURN_IF_ERROR(Check(api_->MemoryInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
    return free_bytes;
  }

  int64_t ReserveBytes() const override {
    if (!api_->loads_lazily() || properties_.integrated) return kDeviceReserveBytesMin;
    return loaded_bytes_.has_value() ? std::max(kDeviceReserveBytesMin, *loaded_bytes_)
                                     : kUnknownReserveBytes;
  }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) override {
    MT_RETURN_IF_ERROR(Enter());
    void* data = nullptr;
    const int error = api_->Malloc(bytes, &data);
    if (error == kCudaMemoryAllocation) {
      int64_t free_bytes = 0, total_bytes = 0;
      (void)api_->MemoryInfo(&free_bytes, &total_bytes);
      return absl::ResourceExhaustedError(
          absl::StrCat("cuda: a block of ", FormatBytes(bytes), " cannot be allocated; ",
                       FormatBytes(free_bytes), " of ", FormatBytes(total_bytes), " are free on ",
                       properties_.name));
    }
    MT_RETURN_IF_ERROR(Check(error, "cudaMalloc"));
    return std::make_unique<CudaMemory>(api_.get(), ordinal_, data, bytes);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamUse use) override {
    MT_RETURN_IF_ERROR(Enter());
    void* workspace = nullptr;
    if (use == StreamUse::kCompute) {
      MT_RETURN_IF_ERROR(
          Check(api_->Malloc(CudaStream::WorkspaceBytes(), &workspace), "cudaMalloc"));
    }
    void* stream = nullptr;
    if (const int error = api_->StreamCreate(&stream); error != kCudaSuccess) {
      if (workspace != nullptr) (void)api_->Free(workspace);
      return Check(error, "cudaStreamCreateWithFlags");
    }
    return std::make_unique<CudaStream>(api_.get(), ordinal_, stream, workspace);
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    MT_RETURN_IF_ERROR(Enter());
    void* event = nullptr;
    MT_RETURN_IF_ERROR(Check(api_->EventCreate(&event), "cudaEventCreate"));
    return std::make_unique<CudaEvent>(api_.get(), ordinal_, event);
  }

  absl::Status Record(Stream& stream, Event& event) override {
    MT_RETURN_IF_ERROR(Enter());
    return Check(api_->EventRecord(Of(event).get(), Of(stream).get()), "cudaEventRecord");
  }
  absl::Status Wait(Stream& stream, Event& event) override {
    MT_RETURN_IF_ERROR(Enter());
    return Check(api_->StreamWaitEvent(Of(stream).get(), Of(event).get()), "cudaStreamWaitEvent");
  }
  absl::Status Synchronize(Event& event) override {
    MT_RETURN_IF_ERROR(Enter());
    return Check(api_->EventSynchronize(Of(event).get()), "cudaEventSynchronize");
  }
  absl::StatusOr<bool> Done(Event& event) override {
    MT_RETURN_IF_ERROR(Enter());
    const int error = api_->EventQuery(Of(event).get());
    if (error == kCudaNotReady) return false;
    MT_RETURN_IF_ERROR(Check(error, "cudaEventQuery"));
    return true;
  }
  absl::StatusOr<double> ElapsedSeconds(Event& start, Event& end) override {
    MT_RETURN_IF_ERROR(Enter());
    float milliseconds = 0;
    MT_RETURN_IF_ERROR(Check(api_->EventElapsed(Of(start).get(), Of(end).get(), &milliseconds),
                             "cudaEventElapsedTime"));
    return milliseconds / 1e3;
  }

  absl::Status PinHost(void* host, int64_t bytes, const PinProgress& progress) override {
    MT_RETURN_IF_ERROR(Enter());
    return pinned_.Pin(host, bytes, progress);
  }
  void UnpinHost(void* host) override {
    (void)api_->SetDevice(ordinal_);
    pinned_.Unpin(host);
  }

  void ShareHostPin(void* host, int64_t bytes) override { pinned_.Share(host, bytes); }

  bool KernelsReadHost() const override { return properties_.reads_registered_memory; }

  absl::Status CopyToDevice(Stream& stream, void* device, const void* host,
                            int64_t bytes) override {
    MT_RETURN_IF_ERROR(Enter());
    return pinned_.ForEachPiece(host, bytes, [&](int64_t at, int64_t part) {
      return Check(api_->CopyToDevice(Of(stream).get(), static_cast<char*>(device) + at,
                                      static_cast<const char*>(host) + at, part),
                   "cudaMemcpyAsync to the device");
    });
  }
  absl::Status CopyToHost(Stream& stream, void* host, const void* device, int64_t bytes) override {
    MT_RETURN_IF_ERROR(Enter());
    return pinned_.ForEachPiece(host, bytes, [&](int64_t at, int64_t part) {
      return Check(api_->CopyToHost(Of(stream).get(), static_cast<char*>(host) + at,
                                    static_cast<const char*>(device) + at, part),
                   "cudaMemcpyAsync to the host");
    });
  }

  absl::Status Upload(Stream& stream, void* device, const void* host, int64_t bytes) override {
    MutexLock lock(&staging_mutex_);
    for (int64_t at = 0; at < bytes; at += kStagingBytes) {
      const int64_t part = std::min(kStagingBytes, bytes - at);
      std::memcpy(staging_, static_cast<const char*>(host) + at, static_cast<size_t>(part));
      MT_RETURN_IF_ERROR(CopyToDevice(stream, static_cast<char*>(device) + at, staging_, part));
      MT_RETURN_IF_ERROR(Finish(stream));
    }
    return absl::OkStatus();
  }
  absl::Status Download(Stream& stream, void* host, const void* device, int64_t bytes) override {
    MutexLock lock(&staging_mutex_);
    for (int64_t at = 0; at < bytes; at += kStagingBytes) {
      const int64_t part = std::min(kStagingBytes, bytes - at);
      MT_RETURN_IF_ERROR(CopyToHost(stream, staging_, static_cast<const char*>(device) + at, part));
      MT_RETURN_IF_ERROR(Finish(stream));
      std::memcpy(static_cast<char*>(host) + at, staging_, static_cast<size_t>(part));
    }
    return absl::OkStatus();
  }

  Kernels& kernels() override { return kernels_; }

  void BeginRange(const char* name) override { api_->RangePush(name); }
  void EndRange() override { api_->RangePop(); }

 private:
  absl::Status Check(int error, const char* call) const { return CudaStatus(*api_, error, call); }
  // CUDA's device is the thread's: lanes are threads, and the first one is theirs unless told.
  absl::Status Enter() const { return Check(api_->SetDevice(ordinal_), "cudaSetDevice"); }
  // Counts what using everything once takes. A device that fails is lost; anything else is told,
  // and leaves the number unknown.
  absl::Status Load(int64_t free_before) {
    const absl::Status status = WarmUp(*this);
    if (IsDeviceLost(status)) return status;
    if (!status.ok()) {
      why_unknown_ = std::string(status.message());
      return absl::OkStatus();
    }
    MT_ASSIGN_OR_RETURN(const std::optional<int64_t> free_after, FreeBytes());
    loaded_bytes_ = std::max<int64_t>(0, free_before - free_after.value_or(free_before));
    return absl::OkStatus();
  }
  absl::Status Finish(Stream& stream) {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> done, CreateEvent());
    MT_RETURN_IF_ERROR(Record(stream, *done));
    return Synchronize(*done);
  }

  const std::shared_ptr<CudaApi> api_;
  const int ordinal_;
  const CudaDeviceProperties properties_;
  const int driver_;
  const CudaSwitches switches_;
  std::optional<int64_t> loaded_bytes_;  // by what was used so far; nothing: not known
  std::string why_unknown_;
  CudaKernels kernels_;
  PinnedRanges pinned_;
  Mutex staging_mutex_;
  void* staging_ = nullptr;  // kStagingBytes; its content guarded by staging_mutex_
};

}  // namespace

absl::StatusOr<CudaDeviceProperties> FindCudaDevice(CudaApi* api, int ordinal) {
  int driver = 0, runtime = 0;
  MT_RETURN_IF_ERROR(CudaStatus(*api, api->Versions(&driver, &runtime), "cudaDriverGetVersion"));
  if (driver == 0) {
    return absl::NotFoundError(
        "cuda: there is no NVIDIA driver; install one, or write device: cpu");
  }
  // A minor version more is a matter of features; the major one has to be the driver's.
  if (driver / 1000 < runtime / 1000) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cuda: the NVIDIA driver is too old: it is for CUDA ", Version(driver),
        ", this program for ", Version(runtime), "; update the driver, or write device: cpu"));
  }
  int count = 0;
  const int error = api->DeviceCount(&count);
  if (error == kCudaNoDevice || (error == kCudaSuccess && count == 0)) {
    return absl::NotFoundError(
        "cuda: the NVIDIA driver finds no GPU (is one hidden by CUDA_VISIBLE_DEVICES?)");
  }
  if (error == kCudaInsufficientDriver) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda: the NVIDIA driver is too old for CUDA ", Version(runtime), ": ",
                     api->Describe(error), "; update the driver, or write device: cpu"));
  }
  MT_RETURN_IF_ERROR(CudaStatus(*api, error, "cudaGetDeviceCount"));
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cuda:", ordinal, ": there is no such GPU; there are ", count, ", from cuda:0 on"));
  }
  CudaDeviceProperties properties;
  MT_RETURN_IF_ERROR(
      CudaStatus(*api, api->Properties(ordinal, &properties), "cudaGetDeviceProperties"));
  if (properties.major < kCudaCapabilityMajorMin) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", ordinal, ": ", properties.name, " has compute capability ",
                     properties.major, ".", properties.minor, "; ", kCudaCapabilityMajorMin,
                     ".0 (Ampere) or newer is needed. Name another GPU, or write device: cpu"));
  }
  return properties;
}

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(std::shared_ptr<CudaApi> api,
                                                         int ordinal) {
  MT_ASSIGN_OR_RETURN(const CudaSwitches switches, ReadCudaSwitches());
  MT_ASSIGN_OR_RETURN(CudaDeviceProperties properties, FindCudaDevice(api.get(), ordinal));
  int driver = 0, runtime = 0;
  MT_RETURN_IF_ERROR(CudaStatus(*api, api->Versions(&driver, &runtime), "cudaDriverGetVersion"));
  auto device = std::make_unique<CudaDevice>(std::move(api), ordinal, std::move(properties), driver,
                                             switches);
  MT_RETURN_IF_ERROR(device->Open());
  return device;
}

}  // namespace megatrain

#include "engine/device/cpu/cpu_device.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/device/cpu/product/product.h"
#include "hwy/targets.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

// Work is done when the call that queues it returns, so a stream holds nothing.
class CpuStream : public Stream {};

class CpuEvent : public Event {
 public:
  std::atomic<Clock::rep> ticks{0};
};

class CpuMemory : public DeviceMemory {
 public:
  CpuMemory(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  ~CpuMemory() override { munmap(data_, bytes_); }
  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  void* const data_;
  const int64_t bytes_;
};

class CpuDevice : public Device {
 public:
  CpuDevice(ThreadPool* pool, const CpuDeviceOptions& options)
      : threads_(pool->threads()), options_(options), kernels_(pool) {}

  std::string Describe() const override {
    return absl::StrCat("cpu, ", threads_, threads_ == 1 ? " thread" : " threads");
  }

  std::string Arithmetic(AttentionChoice) const override {
    const int64_t targets = hwy::SupportedTargets();
    return absl::StrCat("cpu, ", ProductLibrary(), ", ", hwy::TargetName(targets & -targets));
  }

  absl::StatusOr<std::optional<int64_t>> FreeBytes() override { return std::nullopt; }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) override {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot allocate the cpu device's arena of ",
                                                       FormatBytes(bytes), ": ", strerror(errno)));
    }
    madvise(data, bytes, MADV_HUGEPAGE);  // Best effort: without huge pages it is only slower.
    return std::make_unique<CpuMemory>(data, bytes);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamUse) override {
    return std::make_unique<CpuStream>();
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<CpuEvent>();
  }
  absl::Status Record(Stream&, Event& event) override {
    static_cast<CpuEvent&>(event).ticks = Clock::now().time_since_epoch().count();
    return absl::OkStatus();
  }
  absl::Status Wait(Stream&, Event&) override { return absl::OkStatus(); }
  absl::Status Synchronize(Event&) override { return absl::OkStatus(); }
  absl::StatusOr<bool> Done(Event&) override { return true; }
  absl::StatusOr<double> ElapsedSeconds(Event& start, Event& end) override {
    const Clock::duration elapsed(static_cast<CpuEvent&>(end).ticks.load() -
                                  static_cast<CpuEvent&>(start).ticks.load());
    return std::chrono::duration<double>(elapsed).count();
  }

  absl::Status CopyToDevice(Stream&, void* device, const void* host, int64_t bytes) override {
    Copy(device, host, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToHost(Stream&, void* host, const void* device, int64_t bytes) override {
    Copy(host, device, bytes);
    return absl::OkStatus();
  }

  // The device reads host memory as it is.
  absl::Status PinHost(void*, int64_t bytes, const PinProgress& progress) override {
    return progress ? progress(bytes) : absl::OkStatus();
  }
  void UnpinHost(void*) override {}
  bool KernelsReadHost() const override { return true; }
  // Where there are no bytes, there may be no memory either, which memcpy does not allow.
  absl::Status Upload(Stream&, void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) memcpy(device, host, bytes);
    return absl::OkStatus();
  }
  absl::Status Download(Stream&, void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) memcpy(host, device, bytes);
    return absl::OkStatus();
  }

  Kernels& kernels() override { return kernels_; }

 private:
  void Copy(void* to, const void* from, int64_t bytes) const {
    const Clock::time_point start = Clock::now();
    if (bytes > 0) memcpy(to, from, bytes);
    if (options_.link_gigabytes_per_second > 0) {
      std::this_thread::sleep_until(
          start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                      bytes / (options_.link_gigabytes_per_second * 1e9))));
    }
  }

  const int threads_;
  const CpuDeviceOptions options_;
  CpuKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> CreateCpuDevice(ThreadPool* compute_pool, const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(compute_pool, options);
}

}  // namespace megatrain

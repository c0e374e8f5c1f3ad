#include "tests/bench/gpu/gpu_bench_device.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_status.h"

namespace megatrain {
namespace {

constexpr size_t kPageBytes = 4096;

// Events around a call, destroyed with the object.
class Span {
 public:
  explicit Span(CudaApi* api) : api_(api) {}
  Span(Span&& other) noexcept
      : api_(other.api_),
        start(std::exchange(other.start, nullptr)),
        end(std::exchange(other.end, nullptr)) {}
  ~Span() {
    for (void* event : {start, end}) {
      if (event != nullptr) (void)api_->EventDestroy(event);
    }
  }

 private:
  CudaApi* const api_;

 public:
  void* start = nullptr;
  void* end = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuBenchDevice>> GpuBenchDevice::Open(CudaApi* api, int ordinal,
                                                                     const Sizes& sizes) {
  MT_ASSIGN_OR_RETURN(const CudaSwitches switches, ReadCudaSwitches());
  std::unique_ptr<GpuBenchDevice> device(new GpuBenchDevice(api, ordinal, switches));
  MT_RETURN_IF_ERROR(device->Take(ordinal, sizes));
  MT_RETURN_IF_ERROR(device->Fill(sizes.host_bytes));
  return device;
}

GpuBenchDevice::~GpuBenchDevice() {
  for (std::unique_ptr<CudaStream>& stream : streams_) stream = nullptr;
  for (void* memory : {memory_, flushed_}) {
    if (memory != nullptr) (void)api_->Free(memory);
  }
  if (registered_) (void)api_->HostUnregister(host_);
  std::free(host_);
}

absl::Status GpuBenchDevice::Check(int error, const char* call) const {
  return CudaStatus(*api_, error, call);
}

absl::Status GpuBenchDevice::Take(int ordinal, const Sizes& sizes) {
  MT_RETURN_IF_ERROR(Check(api_->SetDevice(ordinal), "cudaSetDevice"));
  MT_RETURN_IF_ERROR(api_->LoadLibraries(switches_));
  host_ = static_cast<char*>(std::aligned_alloc(kPageBytes, static_cast<size_t>(sizes.host_bytes)));
  if (host_ == nullptr) return absl::ResourceExhaustedError("no host memory");
  MT_RETURN_IF_ERROR(Check(api_->HostRegister(host_, sizes.host_bytes), "cudaHostRegister"));
  registered_ = true;
  MT_RETURN_IF_ERROR(Check(api_->Malloc(sizes.device_bytes, &memory_), "cudaMalloc"));
  device_bytes_ = sizes.device_bytes;
  MT_RETURN_IF_ERROR(Check(api_->Malloc(sizes.flush_bytes, &flushed_), "cudaMalloc"));
  flush_bytes_ = sizes.flush_bytes;
  for (std::unique_ptr<CudaStream>& stream : streams_) {
    void *made = nullptr, *workspace = nullptr;
    MT_RETURN_IF_ERROR(Check(api_->StreamCreate(&made), "cudaStreamCreateWithFlags"));
    if (&stream == &streams_[0]) {
      const int error = api_->Malloc(CudaStream::WorkspaceBytes(), &workspace);
      if (error != kCudaSuccess) {
        (void)api_->StreamDestroy(made);
        return Check(error, "cudaMalloc");
      }
    }
    stream = std::make_unique<CudaStream>(api_, ordinal, made, workspace);
  }
  return absl::OkStatus();
}

absl::Status GpuBenchDevice::Fill(int64_t host_bytes) {
  // Random bits of BF16 between -2 and 2, and so of FP32: a card draws less power on zeros, and is
  // faster.
  auto* const values = reinterpret_cast<uint16_t*>(host_);
  uint32_t state = 1;
  for (int64_t i = 0; i < host_bytes / 2; ++i) {
    state = state * 1664525u + 1013904223u;
    const uint16_t exponent = static_cast<uint16_t>(120 + (state >> 16) % 8);
    values[i] = static_cast<uint16_t>((state >> 31) << 15 | exponent << 7 | (state >> 9 & 0x7f));
  }
  for (int64_t at = 0; at < device_bytes_; at += host_bytes) {
    MT_RETURN_IF_ERROR(Check(api_->CopyToDevice(queue(Queue::kKernels), memory() + at, host_,
                                                std::min(host_bytes, device_bytes_ - at)),
                             "cudaMemcpyAsync"));
  }
  return Check(api_->StreamSynchronize(queue(Queue::kKernels)), "cudaStreamSynchronize");
}

absl::StatusOr<double> GpuBenchDevice::Seconds(Queue on, int repetitions,
                                               const std::function<absl::Status()>& call) {
  return MedianSeconds(
      on, repetitions, [] { return absl::OkStatus(); }, call);
}

absl::StatusOr<double> GpuBenchDevice::SecondsWithoutCache(
    int repetitions, const std::function<absl::Status()>& call) {
  const auto flush = [this] {
    return Check(api_->Zero(queue(Queue::kKernels), flushed_, flush_bytes_), "cudaMemsetAsync");
  };
  return MedianSeconds(Queue::kKernels, repetitions, flush, call);
}

absl::StatusOr<double> GpuBenchDevice::MedianSeconds(Queue on, int repetitions,
                                                     const std::function<absl::Status()>& before,
                                                     const std::function<absl::Status()>& call) {
  std::vector<Span> spans;
  for (int i = 0; i <= repetitions; ++i) {
    Span& span = spans.emplace_back(api_);
    MT_RETURN_IF_ERROR(Check(api_->EventCreate(&span.start), "cudaEventCreate"));
    MT_RETURN_IF_ERROR(Check(api_->EventCreate(&span.end), "cudaEventCreate"));
    MT_RETURN_IF_ERROR(before());
    MT_RETURN_IF_ERROR(Check(api_->EventRecord(span.start, queue(on)), "cudaEventRecord"));
    MT_RETURN_IF_ERROR(call());
    MT_RETURN_IF_ERROR(Check(api_->EventRecord(span.end, queue(on)), "cudaEventRecord"));
  }
  MT_RETURN_IF_ERROR(Check(api_->StreamSynchronize(queue(on)), "cudaStreamSynchronize"));
  std::vector<double> seconds;
  for (size_t i = 1; i < spans.size(); ++i) {
    float milliseconds = 0;
    MT_RETURN_IF_ERROR(Check(api_->EventElapsed(spans[i].start, spans[i].end, &milliseconds),
                             "cudaEventElapsedTime"));
    seconds.push_back(std::max(milliseconds * 1e-3, 1e-9));
  }
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
  return seconds[static_cast<size_t>(repetitions / 2)];
}

absl::StatusOr<GpuBenchDevice::Pair> GpuBenchDevice::SecondsBeside(
    Queue first, const std::function<absl::Status()>& first_call, Queue second,
    const std::function<absl::Status()>& second_call, int repetitions) {
  Span spans[2] = {Span(api_), Span(api_)};
  const Queue queues[2] = {first, second};
  for (int i = 0; i < 2; ++i) {
    MT_RETURN_IF_ERROR(Check(api_->EventCreate(&spans[i].start), "cudaEventCreate"));
    MT_RETURN_IF_ERROR(Check(api_->EventCreate(&spans[i].end), "cudaEventCreate"));
  }
  for (int i = 0; i < 2; ++i) {
    MT_RETURN_IF_ERROR(
        Check(api_->EventRecord(spans[i].start, queue(queues[i])), "cudaEventRecord"));
  }
  for (int r = 0; r < repetitions; ++r) {
    MT_RETURN_IF_ERROR(first_call());
    MT_RETURN_IF_ERROR(second_call());
  }
  double seconds[2] = {};
  for (int i = 0; i < 2; ++i) {
    MT_RETURN_IF_ERROR(Check(api_->EventRecord(spans[i].end, queue(queues[i])), "cudaEventRecord"));
  }
  for (int i = 0; i < 2; ++i) {
    float milliseconds = 0;
    MT_RETURN_IF_ERROR(Check(api_->EventSynchronize(spans[i].end), "cudaEventSynchronize"));
    MT_RETURN_IF_ERROR(Check(api_->EventElapsed(spans[i].start, spans[i].end, &milliseconds),
                             "cudaEventElapsedTime"));
    seconds[i] = std::max(milliseconds * 1e-3 / repetitions, 1e-9);
  }
  return Pair{seconds[0], seconds[1]};
}

}  // namespace megatrain

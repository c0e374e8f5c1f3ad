// A GPU as the benchmark takes it: at the edge to CUDA and through the product's own kernels, on
// one stream for kernels and one for each direction of copies.
//
// Thread safety: one thread at a time.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_BENCH_DEVICE_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_BENCH_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/cuda/cuda_kernels.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

class GpuBenchDevice {
 public:
  struct Sizes {
    int64_t device_bytes = 0;  // filled with small numbers
    int64_t host_bytes = 0;    // pinned, whole pages
    // Written before a call that is to find nothing in the device's cache: more than that holds.
    int64_t flush_bytes = int64_t{256} << 20;
  };
  // `api` must outlive this object.
  static absl::StatusOr<std::unique_ptr<GpuBenchDevice>> Open(CudaApi* api, int ordinal,
                                                              const Sizes& sizes);
  ~GpuBenchDevice();
  GpuBenchDevice(const GpuBenchDevice&) = delete;
  GpuBenchDevice& operator=(const GpuBenchDevice&) = delete;

  enum class Queue { kKernels, kToDevice, kToHost };

  CudaApi& api() { return *api_; }
  Kernels& kernels() { return kernels_; }
  Stream& stream() { return *streams_[0]; }
  void* queue(Queue queue) { return streams_[static_cast<size_t>(queue)]->get(); }
  char* host() { return host_; }
  char* memory() { return static_cast<char*>(memory_); }
  int64_t device_bytes() const { return device_bytes_; }

  // Seconds a call takes on the queue by the device's own clock: the median of `repetitions`,
  // queued without a pause behind one that finds everything cold.
  absl::StatusOr<double> Seconds(Queue queue, int repetitions,
                                 const std::function<absl::Status()>& call);
  // The same where each call finds the device's cache full of something else, as a kernel does that
  // comes by once a layer.
  absl::StatusOr<double> SecondsWithoutCache(int repetitions,
                                             const std::function<absl::Status()>& call);
  // Of both together, each on its own queue.
  struct Pair {
    double first = 0, second = 0;
  };
  absl::StatusOr<Pair> SecondsBeside(Queue first, const std::function<absl::Status()>& first_call,
                                     Queue second, const std::function<absl::Status()>& second_call,
                                     int repetitions);
  absl::Status Check(int error, const char* call) const;

 private:
  GpuBenchDevice(CudaApi* api, int ordinal, const CudaSwitches& switches)
      : api_(api), switches_(switches), kernels_(api, ordinal, switches.kernels) {}
  absl::Status Take(int ordinal, const Sizes& sizes);
  absl::StatusOr<double> MedianSeconds(Queue queue, int repetitions,
                                       const std::function<absl::Status()>& before,
                                       const std::function<absl::Status()>& call);
  // Fills the device's memory through the host's.
  absl::Status Fill(int64_t host_bytes);

  CudaApi* const api_;
  const CudaSwitches switches_;
  CudaKernels kernels_;
  char* host_ = nullptr;
  bool registered_ = false;
  void* memory_ = nullptr;
  int64_t device_bytes_ = 0;
  void* flushed_ = nullptr;
  int64_t flush_bytes_ = 0;
  std::unique_ptr<CudaStream> streams_[3];
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_BENCH_DEVICE_H_

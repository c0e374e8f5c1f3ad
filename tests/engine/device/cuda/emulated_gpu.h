// A GpuOpener over EmulatedCuda, whose GPUs a test can look at and make fail.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_GPU_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_GPU_H_

#include <map>
#include <memory>
#include <utility>

#include "engine/device/cuda/cuda_device.h"
#include "engine/device/gpu_opener.h"
#include "tests/engine/device/cuda/emulated_cuda.h"

namespace megatrain {

class EmulatedGpu {
 public:
  explicit EmulatedGpu(const EmulatedCudaOptions& options = {}) : options_(options) {}

  // This object must outlive it. Each call opens a GPU without errors. GPUs have different UUIDs,
  // unless the options give one, and share what is registered of host memory.
  GpuOpener opener() {
    return [this](int ordinal) -> absl::StatusOr<std::unique_ptr<Device>> {
      EmulatedCudaOptions options = options_;
      if (options.pinned == nullptr) options.pinned = pinned_;
      auto api = std::make_unique<EmulatedCuda>(options);
      EmulatedCuda* const edge = api.get();
      absl::StatusOr<std::unique_ptr<Device>> device = CreateCudaDevice(std::move(api), ordinal);
      if (device.ok()) edges_[ordinal] = last_ = edge;
      return device;
    };
  }
  // Of the device that was opened last, or of the one with this number. REQUIRES: it is there.
  EmulatedCuda& edge() { return *last_; }
  EmulatedCuda& edge(int ordinal) { return *edges_.at(ordinal); }

 private:
  const EmulatedCudaOptions options_;
  const std::shared_ptr<EmulatedPinned> pinned_ = std::make_shared<EmulatedPinned>();
  std::map<int, EmulatedCuda*> edges_;
  EmulatedCuda* last_ = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_GPU_H_

// A GpuOpener over EmulatedCuda, kept in reach so that a test can look at it and make it fail.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_GPU_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_GPU_H_

#include <memory>
#include <utility>

#include "engine/device/cuda/cuda_device.h"
#include "engine/device/gpu_opener.h"
#include "tests/engine/device/cuda/emulated_cuda.h"

namespace megatrain {

class EmulatedGpu {
 public:
  explicit EmulatedGpu(const EmulatedCudaOptions& options = {}) : options_(options) {}

  // This object must outlive it. Each call opens a machine of its own, without errors.
  GpuOpener opener() {
    return [this](int ordinal) {
      auto api = std::make_unique<EmulatedCuda>(options_);
      edge_ = api.get();
      return CreateCudaDevice(std::move(api), ordinal);
    };
  }
  // Of the device that was opened last. REQUIRES: it is there.
  EmulatedCuda& edge() { return *edge_; }

 private:
  const EmulatedCudaOptions options_;
  EmulatedCuda* edge_ = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_GPU_H_

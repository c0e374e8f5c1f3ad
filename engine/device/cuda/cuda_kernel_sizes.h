// The memory that the cuda device's kernels take, known without a GPU and without CUDA: a job can
// be planned for a card that is elsewhere.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_

#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/kernel_sizes.h"

namespace megatrain {

// What cuBLASLt is given for a stream; its own default is none. 32 MiB is what NVIDIA recommends
// for Hopper.
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

class CudaKernelSizes : public KernelSizes {
 public:
  int64_t AttentionBackwardWorkspaceBytes(DType, int64_t tokens, int64_t heads, int64_t,
                                          int64_t) const override {
    return cuda::AttentionBackwardWorkspaceBytes(tokens, heads);
  }
  // 48 MiB: for products, and for the partial sums of reductions.
  int64_t StreamWorkspaceBytes() const override {
    return kProductWorkspaceBytes + cuda::kScratchBytes;
  }
  // The kernels' memory lies on the device. What the driver and cuBLASLt hold of the host's is an
  // estimate: it has not been measured.
  int64_t ScratchBytesMax(DType, int64_t) const override { return int64_t{512} << 20; }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_

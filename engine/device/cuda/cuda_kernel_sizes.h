// The memory that the cuda device's kernels take, known without a GPU and without CUDA: a job can
// be planned for a card that is elsewhere.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_

#include <algorithm>
#include <cstdint>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cudnn_sizes.h"
#include "engine/device/kernel_sizes.h"

namespace megatrain {

// What cuBLASLt is given for a stream; its own default is none. 32 MiB is what NVIDIA recommends
// for Hopper.
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

// Device memory that stays free for modules and graphs loaded later, where their bytes could not be
// counted, as on a GPU that is planned for and not here. An estimate, not measured on a GPU.
inline constexpr int64_t kUnknownReserveBytes = int64_t{1536} << 20;

class CudaKernelSizes : public KernelSizes {
 public:
  // Room for cuDNN's gradient too, whether it will be there or not: a plan does not depend on the
  // machine that it is made on. It is for one document as long as they may be, and for more of
  // them where they are shorter; one that takes more than there may be is cut, by heads and then
  // into blocks (cudnn_choice.h).
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& s) const override {
    const int64_t own = cuda::AttentionBackwardWorkspaceBytes(s.tokens, s.heads);
    if (s.dtype != DType::kBF16 || s.head_dim % 8 != 0 || s.head_dim > kCudnnHeadDimMax) {
      return own;
    }
    const int64_t longest =
        CudnnGradientBytes(1, s.heads, CudnnLengthBucket(s.sequence), s.head_dim);
    return std::max(own, std::min(kCudnnWorkspaceBytesMax, longest));
  }
  // A GPU does some 200 operations in BF16 in the time in which it moves a byte, and the gradient
  // moves 8 bytes for 2 operations a token: from 1024 tokens on it is the operations that take
  // longer.
  HeadChunkMax HeadChunk() const override { return {2048, int64_t{1280} << 20}; }
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

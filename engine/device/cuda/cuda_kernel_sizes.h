// The memory and the limits of the cuda device's kernels, computed without a GPU and without CUDA.
// A job can therefore be planned for a GPU of another machine.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_

#include <algorithm>
#include <cstdint>

#include "engine/device/cuda/kernels/delta/delta_sizes.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cudnn_sizes.h"
#include "engine/device/kernel_sizes.h"

namespace megatrain {

// The size of cuBLASLt's workspace for a stream. cuBLASLt has none by default; NVIDIA recommends 32
// MiB for Hopper.
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

// The sizes of CudaKernels.
class CudaKernelSizes : public KernelSizes {
 public:
  // The result has room for cuDNN's gradient even if cuDNN is absent, so that a plan does not
  // depend on the machine on which it is made. The room suffices for one document of the greatest
  // length, or for several shorter ones at once, but is at most kCudnnWorkspaceBytesMax. Longer
  // documents are cut by heads and then into blocks (cudnn_choice.h). There is no such room for
  // calls that cuDNN never takes. These are calls in FP32, with sizes of heads that CudnnTakesHeads
  // refuses, with softcaps or with sinks.
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& s) const override {
    const int64_t own = cuda::AttentionBackwardWorkspaceBytes(s.tokens, s.heads);
    if (s.dtype != DType::kBF16 || !CudnnTakesHeads(s.head_dim, s.value_dim) || s.softcap > 0 ||
        s.sinks) {
      return own;
    }
    const int64_t length = CudnnLengthBucket(s.sequence);
    const int64_t longest = CudnnGradientBytes(1, s.heads, length, s.head_dim);
    return std::max(own, std::min(kCudnnWorkspaceBytesMax, longest));
  }
  int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const override {
    return cuda::GatedDeltaWorkspaceBytes(shape);
  }
  int64_t HeadDimMax() const override { return cuda::kAttentionHeadDimMax; }
  int64_t DeltaKeyDimMax() const override { return cuda::kDeltaKeyDimMax; }
  // A GPU does about 200 operations in BF16 in the time in which it moves a byte to or from its
  // memory. For each element of the LM head's gradient, a chunk moves 8 bytes and does 2 operations
  // per token. So from about 800 tokens on the operations take longer than the moves. 1280 MiB hold
  // the logits of 2048 tokens with a vocabulary of up to 163,840.
  LmHeadChunkMax LmHeadChunk() const override { return {2048, int64_t{1280} << 20}; }
  // Returns 48 MiB: 32 for products, and 16 of scratch for kernels, such as partial sums.
  int64_t StreamWorkspaceBytes() const override {
    return kProductWorkspaceBytes + cuda::kScratchBytes;
  }
  bool ExchangeByNccl() const override { return true; }
  // Returns an estimate, not measured, of the host memory that the driver and cuBLASLt hold. The
  // kernels' own memory is on the device.
  int64_t ScratchBytesMax() const override { return int64_t{512} << 20; }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNEL_SIZES_H_

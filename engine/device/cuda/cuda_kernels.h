// The kernels of the cuda device. Matrix products are cuBLASLt's. Attention is cuDNN's for the
// calls that cuDNN takes (libraries/cudnn_choice.h), unless they have AttentionChoice::kOwn. Zero
// is CUDA's own. Everything else is computed by the kernels in cuda/kernels. Errors are those of
// CudaStatus and of kernels.h.
//
// Thread safety: several threads may call at a time, but only one for each stream.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNELS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNELS_H_

#include <cstdint>

#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/device.h"
#include "engine/device/kernels.h"

namespace megatrain {

// A stream and the device memory that its kernels use besides their arguments.
class CudaStream : public Stream {
 public:
  // Takes ownership of `stream`, a cudaStream_t of GPU `ordinal`, and of `workspace`. The workspace
  // is device memory of WorkspaceBytes(), or null for a stream for copies. `api` must outlive this
  // object.
  CudaStream(CudaApi* api, int ordinal, void* stream, void* workspace)
      : api_(api), ordinal_(ordinal), stream_(stream), workspace_(workspace) {}
  // Waits for the queued work, which may still use the workspace or write to memory that will be
  // reused. Then frees the workspace.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  static int64_t WorkspaceBytes() { return CudaKernelSizes().StreamWorkspaceBytes(); }

  // Returns the cudaStream_t, as native_handle does.
  void* get() const { return stream_; }
  void* native_handle() const override { return stream_; }
  // Returns the first part of the workspace, kProductWorkspaceBytes for cuBLASLt and cuDNN, or null
  // if there is no workspace.
  void* product_workspace() const { return workspace_; }
  // Returns the second part, cuda::kScratchBytes for the kernels. REQUIRES: there is a workspace.
  void* scratch() const;

 private:
  CudaApi* const api_;
  const int ordinal_;
  void* const stream_;
  void* const workspace_;
};

class CudaKernels : public Kernels {
 public:
  // `api` must outlive this object. Its LoadLibraries must succeed before the first call of MatMul.
  // Streams passed to the methods must be CudaStreams of GPU `ordinal`. Call only Zero, Add and
  // AdamW with a stream without a workspace. A method that queues work leaves GPU `ordinal` as the
  // calling thread's current device.
  CudaKernels(CudaApi* api, int ordinal, const cuda::FastPaths& paths = {})
      : api_(api), ordinal_(ordinal), paths_(paths) {}

  absl::Status MatMul(Stream& stream, const MatMulArgs& args) override;
  absl::Status RmsNorm(Stream& stream, const RmsNormArgs& args) override;
  absl::Status RmsNormBackward(Stream& stream, const RmsNormBackwardArgs& args) override;
  absl::Status Rope(Stream& stream, const RopeArgs& args) override;
  absl::Status CopyHeads(Stream& stream, const CopyHeadsArgs& args) override;
  absl::Status SumHeads(Stream& stream, const SumHeadsArgs& args) override;
  absl::Status Attention(Stream& stream, const AttentionArgs& args) override;
  absl::Status AttentionBackward(Stream& stream, const AttentionBackwardArgs& args) override;
  void PrepareAttention(const AttentionBackwardArgs& args) override;
  absl::Status StoreInCache(Stream& stream, const CachedAttentionArgs& args) override;
  absl::Status CachedAttention(Stream& stream, const CachedAttentionArgs& args) override;
  absl::Status Glu(Stream& stream, const GluArgs& args) override;
  absl::Status GluBackward(Stream& stream, const GluBackwardArgs& args) override;
  absl::Status SigmoidGate(Stream& stream, const SigmoidGateArgs& args) override;
  absl::Status SigmoidGateBackward(Stream& stream, const SigmoidGateBackwardArgs& args) override;
  absl::Status Route(Stream& stream, const RouteArgs& args) override;
  absl::Status RouteBackward(Stream& stream, const RouteBackwardArgs& args) override;
  absl::Status RouterSums(Stream& stream, const RouterSumsArgs& args) override;
  absl::Status SortAssignments(Stream& stream, const SortAssignmentsArgs& args) override;
  absl::Status GatherRows(Stream& stream, const GatherRowsArgs& args) override;
  absl::Status AddRows(Stream& stream, const AddRowsArgs& args) override;
  absl::Status WeighRows(Stream& stream, const WeighRowsArgs& args) override;
  absl::Status Add(Stream& stream, const AddArgs& args) override;
  absl::Status CausalConv(Stream& stream, const CausalConvArgs& args) override;
  absl::Status CausalConvBackward(Stream& stream, const CausalConvBackwardArgs& args) override;
  absl::Status GatedDelta(Stream& stream, const GatedDeltaArgs& args) override;
  absl::Status GatedDeltaBackward(Stream& stream, const GatedDeltaBackwardArgs& args) override;
  absl::Status GatedNorm(Stream& stream, const GatedNormArgs& args) override;
  absl::Status GatedNormBackward(Stream& stream, const GatedNormBackwardArgs& args) override;
  absl::Status Embedding(Stream& stream, const EmbeddingArgs& args) override;
  absl::Status EmbeddingBackward(Stream& stream, const EmbeddingBackwardArgs& args) override;
  absl::Status CrossEntropy(Stream& stream, const CrossEntropyArgs& args) override;
  absl::Status PreferenceLoss(Stream& stream, const PreferenceLossArgs& args) override;
  absl::Status BiasBackward(Stream& stream, DType dtype, int64_t rows, int64_t n, const void* dy,
                            int64_t stride, float* dbias, bool add) override;
  absl::Status SumOfSquares(Stream& stream, const float* x, int64_t n, double* sum) override;
  absl::Status Sum(Stream& stream, const float* x, int64_t n, double* sum) override;
  absl::Status CastToBf16InPlace(Stream& stream, void* x, int64_t n) override;
  absl::Status Zero(Stream& stream, void* x, int64_t bytes) override;
  absl::Status Scale(Stream& stream, DType dtype, void* x, int64_t n, const void* factor) override;
  absl::Status AdamW(Stream& stream, const AdamWArgs& args) override;

  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape) const override {
    return sizes_.AttentionBackwardWorkspaceBytes(shape);
  }
  int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const override {
    return sizes_.GatedDeltaBackwardWorkspaceBytes(shape);
  }
  int64_t StreamWorkspaceBytes() const override { return sizes_.StreamWorkspaceBytes(); }
  bool ExchangeByNccl() const override { return sizes_.ExchangeByNccl(); }
  int64_t HeadDimMax() const override { return sizes_.HeadDimMax(); }
  int64_t DeltaKeyDimMax() const override { return sizes_.DeltaKeyDimMax(); }
  LmHeadChunkMax LmHeadChunk() const override { return sizes_.LmHeadChunk(); }
  int64_t ScratchBytesMax() const override { return sizes_.ScratchBytesMax(); }
  // Returns 0, because products are queued with everything else and their time is not measured.
  double MatMulSeconds() const override { return 0; }

 private:
  // Returns the status for `error`, the cudaError_t of a launch of `kernel`.
  absl::Status Launched(int error, const char* kernel) const;

  // Returns the queue for the kernels in cuda/kernels, and makes GPU `ordinal_` the calling
  // thread's current device.
  cuda::Queue QueueOf(Stream& stream) const;

  CudaApi* const api_;
  const int ordinal_;
  const cuda::FastPaths paths_;
  const CudaKernelSizes sizes_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUDA_KERNELS_H_

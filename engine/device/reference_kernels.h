// The reference implementation of every kernel, by plain single-threaded loops that accumulate in
// FP64. Only AdamW is FP32, by AdamWUpdateSpanReference (adamw_kernel.h, which says when it has the
// bits of AdamWUpdateSpan). It is slow and for tests, which compare the kernels of devices with it.
#ifndef MEGATRAIN_ENGINE_DEVICE_REFERENCE_KERNELS_H_
#define MEGATRAIN_ENGINE_DEVICE_REFERENCE_KERNELS_H_

#include <limits>

#include "engine/device/kernels.h"

namespace megatrain {

// Calls ignore the stream and AttentionChoice, and return OK when their work is done. All pointers
// are to host memory. Arguments are not checked, and no workspace is used.
class ReferenceKernels : public Kernels {
 public:
  absl::Status MatMul(Stream& stream, const MatMulArgs& args) override;
  absl::Status RmsNorm(Stream& stream, const RmsNormArgs& args) override;
  absl::Status RmsNormBackward(Stream& stream, const RmsNormBackwardArgs& args) override;
  absl::Status Rope(Stream& stream, const RopeArgs& args) override;
  absl::Status CopyHeads(Stream& stream, const CopyHeadsArgs& args) override;
  absl::Status SumHeads(Stream& stream, const SumHeadsArgs& args) override;
  absl::Status Attention(Stream& stream, const AttentionArgs& args) override;
  absl::Status AttentionBackward(Stream& stream, const AttentionBackwardArgs& args) override;
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
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape&) const override { return 0; }
  int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape&) const override { return 0; }
  int64_t HeadDimMax() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t DeltaKeyDimMax() const override { return std::numeric_limits<int64_t>::max(); }
  LmHeadChunkMax LmHeadChunk() const override { return {1024, int64_t{256} << 20}; }
  int64_t ScratchBytesMax() const override { return 0; }
  double MatMulSeconds() const override { return 0; }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_REFERENCE_KERNELS_H_

// The kernels of the cpu device, which run in parallel on a thread pool. MatMul and the products of
// attention, except attention over a cache, are oneDNN's. Most other kernels use Highway's vector
// instructions.
//
// Calls ignore the stream and return when their work is done. No bit of a result depends on the
// pool's size, because work is cut by shapes and operands and not by threads.
//
// Thread safety: several threads may call at a time, but the pool runs one loop at a time. No call
// may be made within a loop of the pool (thread_pool.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_CPU_KERNELS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_CPU_KERNELS_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/functional/function_ref.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/attention.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// The sizes of CpuKernels, known without a pool.
class CpuKernelSizes : public KernelSizes {
 public:
  // `threads` is the number of threads of the pool that the kernels will run on.
  explicit CpuKernelSizes(int threads) : threads_(threads) {}

  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape) const override;
  int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const override;
  int64_t HeadDimMax() const override { return kCpuHeadDimMax; }
  int64_t DeltaKeyDimMax() const override { return std::numeric_limits<int64_t>::max(); }
  // A processor's products are slow compared with its memory, so chunks of few tokens suffice.
  LmHeadChunkMax LmHeadChunk() const override { return {1024, int64_t{256} << 20}; }
  int64_t ScratchBytesMax() const override;

 private:
  const int threads_;
};

class CpuKernels : public Kernels {
 public:
  // `pool` must not be null and must outlive this object.
  explicit CpuKernels(ThreadPool* pool);

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

  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape) const override {
    return sizes_.AttentionBackwardWorkspaceBytes(shape);
  }
  int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const override {
    return sizes_.GatedDeltaBackwardWorkspaceBytes(shape);
  }
  int64_t HeadDimMax() const override { return sizes_.HeadDimMax(); }
  int64_t DeltaKeyDimMax() const override { return sizes_.DeltaKeyDimMax(); }
  LmHeadChunkMax LmHeadChunk() const override { return sizes_.LmHeadChunk(); }
  int64_t ScratchBytesMax() const override { return sizes_.ScratchBytesMax(); }
  double MatMulSeconds() const override;

 private:
  // Computes sums over `rows` rows of row_elements elements each. The pool's threads call `run` for
  // ranges of rows. `run` writes the sums over its range to part[width]. Then the parts are added
  // in their order to `sums` [width], which is first set to 0 unless `add` is true. If `sums` is
  // null, `run` is called all the same but the parts are not added.
  void SumInParts(int64_t rows, int64_t row_elements, int64_t width, float* sums, bool add,
                  absl::FunctionRef<void(int64_t begin, int64_t end, float* part)> run);

  ThreadPool* const pool_;
  const CpuKernelSizes sizes_;
  const bool native_bf16_;
  WorkspacePool workspaces_;
  std::atomic<int64_t> matmul_nanoseconds_{0};
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_CPU_KERNELS_H_

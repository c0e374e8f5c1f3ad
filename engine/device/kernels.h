// The kernels (basic operations on device memory) that layer code calls. Each device has one
// implementation.
//
// Shapes, types and memory are those of kernel_args.h. Each method XYZ computes what the comment of
// XYZArgs says. On a GPU a call returns as soon as the work is queued. On the cpu device it returns
// when the work is done. Argument structs are read during the call only, but the memory that they
// point to is used until the work is done.
//
// Reductions have a fixed order. On one device the order depends on shapes, on the values of
// integer operands (such as ids and the bounds of documents), on the alignment of operands, on the
// sizes of workspaces and on AttentionChoice. It never depends on timing.
//
// Errors are those of the device (device.h). A shape that the device does not take gives
// InvalidArgument or, at rare limits of kernels, Internal. Most other faults of arguments are not
// noticed. Errors of queued work come from later calls.
//
// Thread safety: several threads may call at a time if each uses a Stream of its own. Streams must
// be for StreamUse::kCompute (device.h). Zero, Add and AdamW also take streams for copies.
#ifndef MEGATRAIN_ENGINE_DEVICE_KERNELS_H_
#define MEGATRAIN_ENGINE_DEVICE_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/device/delta_args.h"
#include "engine/device/expert_args.h"
#include "engine/device/kernel_args.h"
#include "engine/device/kernel_sizes.h"

namespace megatrain {

class Stream;  // engine/device/device.h

// The kernels of one device. Device::kernels returns them.
class Kernels : public KernelSizes {
 public:
  // ---- Products, norms and heads (kernel_args.h) ----
  virtual absl::Status MatMul(Stream& stream, const MatMulArgs& args) = 0;
  virtual absl::Status RmsNorm(Stream& stream, const RmsNormArgs& args) = 0;
  virtual absl::Status RmsNormBackward(Stream& stream, const RmsNormBackwardArgs& args) = 0;
  virtual absl::Status Rope(Stream& stream, const RopeArgs& args) = 0;
  virtual absl::Status CopyHeads(Stream& stream, const CopyHeadsArgs& args) = 0;
  virtual absl::Status SumHeads(Stream& stream, const SumHeadsArgs& args) = 0;

  // ---- Attention (kernel_args.h) ----

  // Both attention methods return FailedPrecondition if AttentionChoice::kLibrary is chosen and the
  // library does not take the call. The cpu device has no library and ignores the choice. Call
  // Device::CheckAttention to learn whether there is a library.
  virtual absl::Status Attention(Stream& stream, const AttentionArgs& args) = 0;
  virtual absl::Status AttentionBackward(Stream& stream, const AttentionBackwardArgs& args) = 0;
  // Announces that Attention and AttentionBackward will be called with these shapes, perhaps some
  // seconds later. Slow preparations then begin in the background. A workspace of 0 bytes announces
  // the forward pass alone. Pass the pointers of the later calls, because their alignment matters.
  // Only the memory of document_starts is read, during the call. A call that was not announced may
  // take longer but is correct.
  virtual void PrepareAttention(const AttentionBackwardArgs& args) { (void)args; }
  // Writes the keys and values of each token t to row first_rows[t] + positions[t] of the cache.
  // Does nothing for tokens of no sequence. Reads neither `q` nor `heads`, and leaves `out` alone.
  virtual absl::Status StoreInCache(Stream& stream, const CachedAttentionArgs& args) = 0;
  // Computes the attention of each token t over the rows of its sequence up to its own. These are
  // rows first_rows[t] to first_rows[t] + positions[t] of the cache or, with a window, the last
  // `window` of them. `k` and `v` are not read. The output of a token of no sequence is 0. The bits
  // of a token depend on no other token of the call. REQUIRES: StoreInCache has stored these rows.
  virtual absl::Status CachedAttention(Stream& stream, const CachedAttentionArgs& args) = 0;

  // ---- Gated units (kernel_args.h) ----
  virtual absl::Status Glu(Stream& stream, const GluArgs& args) = 0;
  virtual absl::Status GluBackward(Stream& stream, const GluBackwardArgs& args) = 0;
  virtual absl::Status SigmoidGate(Stream& stream, const SigmoidGateArgs& args) = 0;
  virtual absl::Status SigmoidGateBackward(Stream& stream, const SigmoidGateBackwardArgs& args) = 0;

  // ---- Mixtures of experts (expert_args.h), and sums of matrices ----
  virtual absl::Status Route(Stream& stream, const RouteArgs& args) = 0;
  virtual absl::Status RouteBackward(Stream& stream, const RouteBackwardArgs& args) = 0;
  virtual absl::Status RouterSums(Stream& stream, const RouterSumsArgs& args) = 0;
  virtual absl::Status SortAssignments(Stream& stream, const SortAssignmentsArgs& args) = 0;
  virtual absl::Status GatherRows(Stream& stream, const GatherRowsArgs& args) = 0;
  virtual absl::Status AddRows(Stream& stream, const AddRowsArgs& args) = 0;
  virtual absl::Status WeighRows(Stream& stream, const WeighRowsArgs& args) = 0;
  virtual absl::Status Add(Stream& stream, const AddArgs& args) = 0;

  // ---- The gated delta net (delta_args.h) ----
  virtual absl::Status CausalConv(Stream& stream, const CausalConvArgs& args) = 0;
  virtual absl::Status CausalConvBackward(Stream& stream, const CausalConvBackwardArgs& args) = 0;
  virtual absl::Status GatedDelta(Stream& stream, const GatedDeltaArgs& args) = 0;
  virtual absl::Status GatedDeltaBackward(Stream& stream, const GatedDeltaBackwardArgs& args) = 0;
  virtual absl::Status GatedNorm(Stream& stream, const GatedNormArgs& args) = 0;
  virtual absl::Status GatedNormBackward(Stream& stream, const GatedNormBackwardArgs& args) = 0;

  // ---- Embedding and losses (kernel_args.h) ----
  virtual absl::Status Embedding(Stream& stream, const EmbeddingArgs& args) = 0;
  virtual absl::Status EmbeddingBackward(Stream& stream, const EmbeddingBackwardArgs& args) = 0;
  virtual absl::Status CrossEntropy(Stream& stream, const CrossEntropyArgs& args) = 0;
  virtual absl::Status PreferenceLoss(Stream& stream, const PreferenceLossArgs& args) = 0;

  // ---- Sums, elements and updates ----

  // Computes dbias[i] += the sum over rows of dy[row, i] for i < n. `dy` is [rows, n] of `dtype`,
  // with rows `stride` elements apart. If `add` is false, dbias is overwritten.
  virtual absl::Status BiasBackward(Stream& stream, DType dtype, int64_t rows, int64_t n,
                                    const void* dy, int64_t stride, float* dbias, bool add) = 0;
  // Computes *sum = the sum of x[i]^2 for i < n in FP64. `sum` points to device memory. If any x[i]
  // is not finite, *sum is not finite either.
  virtual absl::Status SumOfSquares(Stream& stream, const float* x, int64_t n, double* sum) = 0;
  // Computes *sum = the sum of x[i] for i < n in FP64. `sum` points to device memory.
  virtual absl::Status Sum(Stream& stream, const float* x, int64_t n, double* sum) = 0;
  // Rounds the n FP32 elements of `x` to BF16 (nearest even) into the first 2 n bytes of the same
  // memory. A GPU needs `x` aligned to 16 bytes and returns Internal otherwise.
  virtual absl::Status CastToBf16InPlace(Stream& stream, void* x, int64_t n) = 0;
  // Sets `bytes` bytes to 0.
  virtual absl::Status Zero(Stream& stream, void* x, int64_t bytes) = 0;
  // Computes x[i] *= *factor for n elements. Products are rounded once. `x` and `factor` point to
  // device memory of `dtype`, and `factor` must not point into `x`.
  virtual absl::Status Scale(Stream& stream, DType dtype, void* x, int64_t n,
                             const void* factor) = 0;
  // Computes the same bits as AdamWUpdateSpan (engine/optim/kernel/adamw_kernel.h).
  virtual absl::Status AdamW(Stream& stream, const AdamWArgs& args) = 0;

  // Returns the seconds spent in MatMul calls since this object was made, or 0 if the device does
  // not measure them. A benchmark computes from this the share of time that is not products.
  virtual double MatMulSeconds() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_KERNELS_H_

// The kernels that layer code calls. Each device has one implementation.
//
// Shapes, types and memory are those of kernel_args.h. A call returns as soon as the work is
// queued, or on the cpu device when it is done. Reductions have a fixed order that depends on
// shapes, on the lengths of documents and on the alignment of operands alone, never on timing.
// Errors are those of the device (device.h). A shape that the device does not take gives
// InvalidArgument or, at rare limits of kernels, Internal. Errors of queued work come from later
// calls.
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

class Kernels : public KernelSizes {
 public:
  virtual absl::Status MatMul(Stream& stream, const MatMulArgs& args) = 0;
  virtual absl::Status RmsNorm(Stream& stream, const RmsNormArgs& args) = 0;
  virtual absl::Status RmsNormBackward(Stream& stream, const RmsNormBackwardArgs& args) = 0;
  virtual absl::Status Rope(Stream& stream, const RopeArgs& args) = 0;
  virtual absl::Status CopyHeads(Stream& stream, const CopyHeadsArgs& args) = 0;
  virtual absl::Status SumHeads(Stream& stream, const SumHeadsArgs& args) = 0;
  // Both return FailedPrecondition if AttentionChoice::kLibrary is chosen and the library does not
  // take the call. The cpu, which has no library, ignores the choice; Device::CheckAttention tells
  // that kLibrary is not possible there.
  virtual absl::Status Attention(Stream& stream, const AttentionArgs& args) = 0;
  virtual absl::Status AttentionBackward(Stream& stream, const AttentionBackwardArgs& args) = 0;
  // Announces that both attention calls will follow with these shapes, perhaps in some seconds, so
  // that slow preparations can begin in the background. A workspace of 0 bytes announces the
  // forward pass alone. Of the pointers only document_starts is read, during the call. A call that
  // was not announced takes longer but is correct.
  virtual void PrepareAttention(const AttentionBackwardArgs& args) { (void)args; }
  // Writes the keys and values of the tokens to their rows of the cache, first_rows + positions.
  // Reads neither `q` nor `heads`, and leaves `out` alone.
  virtual absl::Status StoreInCache(Stream& stream, const CachedAttentionArgs& args) = 0;
  // Computes the attention of each token over the rows of its sequence, up to its own: rows
  // first_rows to first_rows + positions of the cache, or the last `window` of them. StoreInCache
  // has stored them; `k` and `v` are not read. The output of a token of no sequence is 0. A token's
  // bits depend on no other token of the call.
  virtual absl::Status CachedAttention(Stream& stream, const CachedAttentionArgs& args) = 0;
  virtual absl::Status Glu(Stream& stream, const GluArgs& args) = 0;
  virtual absl::Status GluBackward(Stream& stream, const GluBackwardArgs& args) = 0;
  virtual absl::Status SigmoidGate(Stream& stream, const SigmoidGateArgs& args) = 0;
  virtual absl::Status SigmoidGateBackward(Stream& stream, const SigmoidGateBackwardArgs& args) = 0;
  // For mixtures of experts (expert_args.h).
  virtual absl::Status Route(Stream& stream, const RouteArgs& args) = 0;
  virtual absl::Status RouteBackward(Stream& stream, const RouteBackwardArgs& args) = 0;
  virtual absl::Status RouterSums(Stream& stream, const RouterSumsArgs& args) = 0;
  virtual absl::Status SortAssignments(Stream& stream, const SortAssignmentsArgs& args) = 0;
  virtual absl::Status GatherRows(Stream& stream, const GatherRowsArgs& args) = 0;
  virtual absl::Status AddRows(Stream& stream, const AddRowsArgs& args) = 0;
  virtual absl::Status WeighRows(Stream& stream, const WeighRowsArgs& args) = 0;
  virtual absl::Status Add(Stream& stream, const AddArgs& args) = 0;
  // For the gated delta net (delta_args.h).
  virtual absl::Status CausalConv(Stream& stream, const CausalConvArgs& args) = 0;
  virtual absl::Status CausalConvBackward(Stream& stream, const CausalConvBackwardArgs& args) = 0;
  virtual absl::Status GatedDelta(Stream& stream, const GatedDeltaArgs& args) = 0;
  virtual absl::Status GatedDeltaBackward(Stream& stream, const GatedDeltaBackwardArgs& args) = 0;
  virtual absl::Status GatedNorm(Stream& stream, const GatedNormArgs& args) = 0;
  virtual absl::Status GatedNormBackward(Stream& stream, const GatedNormBackwardArgs& args) = 0;
  virtual absl::Status Embedding(Stream& stream, const EmbeddingArgs& args) = 0;
  virtual absl::Status EmbeddingBackward(Stream& stream, const EmbeddingBackwardArgs& args) = 0;
  virtual absl::Status CrossEntropy(Stream& stream, const CrossEntropyArgs& args) = 0;
  virtual absl::Status PreferenceLoss(Stream& stream, const PreferenceLossArgs& args) = 0;
  // Computes dbias[n] += sum over rows of dy[rows, n], whose rows are `stride` elements apart.
  // Without `add`, dbias is overwritten.
  virtual absl::Status BiasBackward(Stream& stream, DType dtype, int64_t rows, int64_t n,
                                    const void* dy, int64_t stride, float* dbias, bool add) = 0;
  // Computes *sum = sum of x[i]^2 in FP64. Any element that is not finite makes it not finite.
  virtual absl::Status SumOfSquares(Stream& stream, const float* x, int64_t n, double* sum) = 0;
  // Computes *sum = sum of x[i] in FP64.
  virtual absl::Status Sum(Stream& stream, const float* x, int64_t n, double* sum) = 0;
  // Rounds x[n] to BF16 (nearest even) into the first 2 n bytes of the same memory. A GPU needs `x`
  // aligned to 16 bytes.
  virtual absl::Status CastToBf16InPlace(Stream& stream, void* x, int64_t n) = 0;
  virtual absl::Status Zero(Stream& stream, void* x, int64_t bytes) = 0;
  // Computes x[i] *= *factor for n elements; x and *factor have `dtype`. Products are rounded once.
  virtual absl::Status Scale(Stream& stream, DType dtype, void* x, int64_t n,
                             const void* factor) = 0;
  // Computes the same bits as AdamWUpdateSpan. `stream` may also be one for copies.
  virtual absl::Status AdamW(Stream& stream, const AdamWArgs& args) = 0;

  // Returns the seconds spent in MatMul calls since the start, 0 if they are not measured. A
  // benchmark computes from it the share of time that is not products.
  virtual double MatMulSeconds() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_KERNELS_H_

// The host functions that launch the kernels of the cuda device. Each queues its work on a stream
// and returns a cudaError_t, 0 if the work was queued, kInvalidValue (primitives.h) if the kernel
// does not take the sizes. Arguments are those of kernel_args.h, expert_args.h, delta_args.h and
// Kernels.
//
// `stream` is a cudaStream_t. `scratch` is device memory of kScratchBytes that belongs to the
// stream.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCHERS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCHERS_H_

#include <cstdint>

#include "engine/device/delta_args.h"
#include "engine/device/expert_args.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

// Optional paths that only make kernels faster. Each can be switched off to find out which one
// gives wrong results. Without it a kernel is slower and may add up sums in another order.
struct FastPaths {
  bool tensor_core_attention = true;
  // Kernels move packs of 16 bytes instead of single elements. Tensor cores always take packs.
  bool vector_loads = true;
  // Several blocks sum up parts of a sum, which are then added. Otherwise one block makes the sum.
  bool split_sums = true;
};

// The stream on which a kernel is queued, and the paths that it may take.
struct Queue {
  Queue(void* stream, const FastPaths& paths = {}) : stream(stream), paths(paths) {}

  void* stream;  // a cudaStream_t
  FastPaths paths;
};

// The size of a stream's scratch memory, through which blocks pass data to those of the next
// kernel.
inline constexpr int64_t kScratchBytes = int64_t{16} << 20;

int RmsNorm(const Queue& queue, const RmsNormArgs& args);
int RmsNormBackward(const Queue& queue, const RmsNormBackwardArgs& args, void* scratch);
int Rope(const Queue& queue, const RopeArgs& args);
int CopyHeads(const Queue& queue, const CopyHeadsArgs& args);
int SumHeads(const Queue& queue, const SumHeadsArgs& args);
int StoreInCache(const Queue& queue, const CachedAttentionArgs& args);
// Takes head sizes up to kAttentionHeadDimMax.
int CachedAttention(const Queue& queue, const CachedAttentionArgs& args);
int Glu(const Queue& queue, const GluArgs& args);
int GluBackward(const Queue& queue, const GluBackwardArgs& args);
int SigmoidGate(const Queue& queue, const SigmoidGateArgs& args);
int SigmoidGateBackward(const Queue& queue, const SigmoidGateBackwardArgs& args);
int Embedding(const Queue& queue, const EmbeddingArgs& args);
// Adds to dtable. args.add is not read: without it the caller zeroes dtable first.
int EmbeddingBackward(const Queue& queue, const EmbeddingBackwardArgs& args, void* scratch);
int CrossEntropy(const Queue& queue, const CrossEntropyArgs& args);
int PreferenceLoss(const Queue& queue, const PreferenceLossArgs& args);
int BiasBackward(const Queue& queue, DType dtype, int64_t rows, int64_t n, const void* dy,
                 int64_t stride, float* dbias, bool add, void* scratch);
int SumOfSquares(const Queue& queue, const float* x, int64_t n, double* sum, void* scratch);
int Sum(const Queue& queue, const float* x, int64_t n, double* sum, void* scratch);
int Add(const Queue& queue, const AddArgs& args);
// `x` and `scratch` must be aligned to 16 bytes.
int CastToBf16InPlace(const Queue& queue, void* x, int64_t n, void* scratch);
int Scale(const Queue& queue, DType dtype, void* x, int64_t n, const void* factor);
int AdamW(const Queue& queue, const AdamWArgs& args);
// Computes to[i] = from[i] for n BF16 elements; meant for short arrays.
int WidenBf16(const Queue& queue, const void* from, int64_t n, float* to);

// The most experts and groups, together, that Route takes.
inline constexpr int64_t kRouteFloatsMax = 12288;
int Route(const Queue& queue, const RouteArgs& args);
int RouteBackward(const Queue& queue, const RouteBackwardArgs& args);
int RouterSums(const Queue& queue, const RouterSumsArgs& args, void* scratch);
int SortAssignments(const Queue& queue, const SortAssignmentsArgs& args, void* scratch);
int GatherRows(const Queue& queue, const GatherRowsArgs& args);
int AddRows(const Queue& queue, const AddRowsArgs& args);
int WeighRows(const Queue& queue, const WeighRowsArgs& args);

int CausalConv(const Queue& queue, const CausalConvArgs& args);
int CausalConvBackward(const Queue& queue, const CausalConvBackwardArgs& args, void* scratch);
// Take key_dim up to kDeltaKeyDimMax (delta/delta_sizes.h).
int GatedDelta(const Queue& queue, const GatedDeltaArgs& args);
int GatedDeltaBackward(const Queue& queue, const GatedDeltaBackwardArgs& args);
int GatedNorm(const Queue& queue, const GatedNormArgs& args);
int GatedNormBackward(const Queue& queue, const GatedNormBackwardArgs& args, void* scratch);

// Attention for all dtypes and head sizes up to kAttentionHeadDimMax, with memory linear in tokens.
// BF16 runs on tensor cores if FastPaths allow it, the head size is a multiple of 8 up to
// kTensorHeadDimMax and operands are aligned to 16 bytes. Everything else runs in FP32. Head sizes
// are those of queries, keys and values.
inline constexpr int64_t kAttentionHeadDimMax = 512;
inline constexpr int64_t kTensorHeadDimMax = 256;
int Attention(const Queue& queue, const AttentionArgs& args);
int AttentionBackward(const Queue& queue, const AttentionBackwardArgs& args);
// Returns the bytes of AttentionBackwardArgs::workspace for these kernels.
constexpr int64_t AttentionBackwardWorkspaceBytes(int64_t tokens, int64_t heads) {
  return tokens * heads * int64_t{sizeof(float)};
}

// The description of packed documents for cuDNN: the adjacent documents of one call.
inline constexpr int kPackedDocumentsMax = 64;
inline constexpr int kPackedTensorsMax = 8;
struct PackedDocuments {
  int32_t documents = 0;
  int32_t starts[kPackedDocumentsMax + 1] = {};  // in tokens; the first is 0, the last the end
  int32_t tensors = 0;
  int64_t token_strides[kPackedTensorsMax] = {};  // in elements
};
// WritePackedIndex writes the description to `index`, device memory of kPackedIndexBytes, as arrays
// aligned to kPackedArrayBytes. First come the int32 lengths [documents], then for each tensor the
// int64 offsets [documents + 1] of the documents, in elements.
inline constexpr int64_t kPackedArrayBytes = 1024;
inline constexpr int64_t kPackedIndexBytes = (1 + kPackedTensorsMax) * kPackedArrayBytes;
static_assert((kPackedDocumentsMax + 1) * sizeof(int64_t) <= kPackedArrayBytes);
static_assert(sizeof(PackedDocuments) <= 4096, "a kernel's arguments");
int WritePackedIndex(void* stream, const PackedDocuments& documents, void* index);

// One part of a gradient that comes in several parts, for AddAttentionPart.
struct AttentionPart {
  int64_t rows = 0, width = 0;
  const void* part = nullptr;  // [rows, width], BF16, contiguous
  float* sum = nullptr;        // [rows, width], contiguous; unused if first and last
  bool first = false, last = false;
  void* out = nullptr;  // [rows, width], BF16; used if last
  int64_t out_stride = 0;
};
// Adds a part to a sum: sum += part. The first part overwrites the sum. With the last part the sum
// is rounded once and written to `out`. The parts of an element are added in FP32 in the order of
// the calls. The width must be a multiple of 4. All addresses and rows must be aligned to 16 bytes.
int AddAttentionPart(void* stream, const AttentionPart& part);

// Computes to[c, r] = from[r, c]. It converts statistics between the layouts [heads, tokens] and
// [tokens, heads].
int TransposeStatistics(void* stream, const float* from, int64_t rows, int64_t columns,
                        int64_t from_stride, float* to, int64_t to_stride);

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCHERS_H_

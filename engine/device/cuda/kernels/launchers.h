// The host functions that launch the kernels of the cuda device. Each queues its work on a stream
// and computes what the method of the same name of Kernels (engine/device/kernels.h) does, unless a
// comment says otherwise. Each returns a cudaError_t. It is 0 if the work was queued, or if there
// is nothing to do. It is kInvalidValue (primitives.h) if the kernel does not take the sizes or the
// alignment of operands.
//
// `stream` is a cudaStream_t of the calling thread's current device. `scratch` is device memory of
// kScratchBytes that only this stream uses, aligned to 16 bytes.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCHERS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCHERS_H_

#include <cstdint>

#include "engine/device/delta_args.h"
#include "engine/device/expert_args.h"
#include "engine/device/kernel_args.h"

namespace megatrain::cuda {

// Optional ways of computing that make kernels faster. Each can be switched off to find out which
// one gives wrong results. Without it a kernel is slower and may add up sums in another order.
struct FastPaths {
  bool tensor_core_attention = true;
  // Kernels move packs of 16 bytes instead of single elements. Attention on tensor cores and
  // AddAttentionPart always do.
  bool vector_loads = true;
  // Several blocks compute parts of a sum, which are then added. Otherwise one block computes the
  // whole sum.
  bool split_sums = true;
};

// The stream on which kernels are queued, and the fast paths that they may take. A stream alone
// converts to a Queue with all fast paths.
struct Queue {
  Queue(void* stream, const FastPaths& paths = {}) : stream(stream), paths(paths) {}

  void* stream;  // a cudaStream_t
  FastPaths paths;
};

// The size of a stream's scratch memory. Through it the blocks of a kernel pass data to the blocks
// of the next kernel.
inline constexpr int64_t kScratchBytes = int64_t{16} << 20;

int RmsNorm(const Queue& queue, const RmsNormArgs& args);
int RmsNormBackward(const Queue& queue, const RmsNormBackwardArgs& args, void* scratch);
int Rope(const Queue& queue, const RopeArgs& args);
int CopyHeads(const Queue& queue, const CopyHeadsArgs& args);
int SumHeads(const Queue& queue, const SumHeadsArgs& args);
int StoreInCache(const Queue& queue, const CachedAttentionArgs& args);
// Takes a head_dim and a value_dim of up to kAttentionHeadDimMax.
int CachedAttention(const Queue& queue, const CachedAttentionArgs& args);
int Glu(const Queue& queue, const GluArgs& args);
int GluBackward(const Queue& queue, const GluBackwardArgs& args);
int SigmoidGate(const Queue& queue, const SigmoidGateArgs& args);
int SigmoidGateBackward(const Queue& queue, const SigmoidGateBackwardArgs& args);
int Embedding(const Queue& queue, const EmbeddingArgs& args);
// Adds to dtable even if args.add is false, so the caller must zero dtable first in that case.
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
// Converts n BF16 elements of `from` to FP32. Meant for short arrays.
int WidenBf16(const Queue& queue, const void* from, int64_t n, float* to);

// The largest sum of the numbers of experts and of groups that Route takes.
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
// GatedDelta and GatedDeltaBackward take a key_dim of up to kDeltaKeyDimMax (delta/delta_sizes.h).
int GatedDelta(const Queue& queue, const GatedDeltaArgs& args);
int GatedDeltaBackward(const Queue& queue, const GatedDeltaBackwardArgs& args);
int GatedNorm(const Queue& queue, const GatedNormArgs& args);
int GatedNormBackward(const Queue& queue, const GatedNormBackwardArgs& args, void* scratch);

// Attention takes all dtypes and head sizes (head_dim and value_dim) of up to kAttentionHeadDimMax.
// Memory is linear in tokens. BF16 runs on tensor cores if FastPaths allow it, if both head sizes
// are multiples of 8 up to kTensorHeadDimMax, and if operands and their rows are aligned to 16
// bytes. Everything else is computed in FP32. `choice` and document_starts are not read.
inline constexpr int64_t kAttentionHeadDimMax = 512;
inline constexpr int64_t kTensorHeadDimMax = 256;
int Attention(const Queue& queue, const AttentionArgs& args);
int AttentionBackward(const Queue& queue, const AttentionBackwardArgs& args);
// Returns the bytes of AttentionBackwardArgs::workspace that AttentionBackward uses.
constexpr int64_t AttentionBackwardWorkspaceBytes(int64_t tokens, int64_t heads) {
  return tokens * heads * int64_t{sizeof(float)};
}

// The adjacent documents of one call of cuDNN, for WritePackedIndex.
inline constexpr int kPackedDocumentsMax = 64;
inline constexpr int kPackedTensorsMax = 8;
struct PackedDocuments {
  int32_t documents = 0;
  // [documents + 1], in tokens: where each document begins, the first at 0, and where the last one
  // ends
  int32_t starts[kPackedDocumentsMax + 1] = {};
  int32_t tensors = 0;
  // [tensors]: the distance between tokens of each tensor, in elements
  int64_t token_strides[kPackedTensorsMax] = {};
};
// The sizes of an array and of the whole index that WritePackedIndex writes.
inline constexpr int64_t kPackedArrayBytes = 1024;
inline constexpr int64_t kPackedIndexBytes = (1 + kPackedTensorsMax) * kPackedArrayBytes;
static_assert((kPackedDocumentsMax + 1) * sizeof(int64_t) <= kPackedArrayBytes);
static_assert(sizeof(PackedDocuments) <= 4096, "a kernel's arguments");
// Writes lengths and offsets of the documents to `index`, device memory of kPackedIndexBytes, as
// arrays that begin kPackedArrayBytes apart. First come the int32 lengths [documents], in tokens.
// Then come for each tensor the int64 offsets [documents + 1] of the documents, in elements.
// `documents` is read during the call only.
int WritePackedIndex(void* stream, const PackedDocuments& documents, void* index);

// One part of a gradient that comes in several parts, for AddAttentionPart.
struct AttentionPart {
  int64_t rows = 0, width = 0;
  const void* part = nullptr;        // [rows, width], BF16, contiguous
  float* sum = nullptr;              // [rows, width], contiguous; not used if both first and last
  bool first = false, last = false;  // this is the first part, the last part
  void* out = nullptr;               // [rows, width], BF16; used if last
  int64_t out_stride = 0;
};
// Adds a part to a sum: sum += part, in FP32. The first part overwrites the sum. With the last part
// the result is rounded and written to `out`, and not to `sum`. Takes at most kThreadsMax elements
// (primitives.h), a width that is a multiple of 4, an out_stride that is a multiple of 8, and
// pointers that are aligned to 16 bytes; those that are not used may be null.
int AddAttentionPart(void* stream, const AttentionPart& part);

// Computes to[c, r] = from[r, c] for `from` [rows, columns] and `to` [columns, rows]. Strides are
// distances between rows in elements. This converts statistics between the layouts [heads, tokens]
// and [tokens, heads].
int TransposeStatistics(void* stream, const float* from, int64_t rows, int64_t columns,
                        int64_t from_stride, float* to, int64_t to_stride);

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_LAUNCHERS_H_

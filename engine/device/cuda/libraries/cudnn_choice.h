// Decides which calls of attention cuDNN takes, and into which graphs (cudnn_graphs.h) each call is
// cut. The answers depend on the arguments alone: types, shapes (which include documents' lengths
// and the size of the workspace), strides, shaping, scale, and the alignment of operands.
// CudaKernels applies the user's AttentionChoice before. Pointers in the arguments are not
// followed, except document_starts.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/cuda/libraries/document_runs.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// Both return true if dtype, sizes of heads (CudnnTakesHeads) and alignment suit cuDNN, and if
// there are tokens but neither softcaps nor sinks. cuDNN still does not take a call that the
// functions below cannot cut into graphs.
bool CudnnMayTake(const AttentionArgs& args);
bool CudnnMayTake(const AttentionBackwardArgs& args);

// Returns true if all documents have the same length, which is a positive multiple of 512, and a
// document has few enough elements for cuDNN to count them in 32 bits. Other documents are passed
// as packed documents. REQUIRES: args.documents > 0.
bool IsUniform(const AttentionArgs& args);

// Returns the number of query heads for each head of keys and values.
inline int64_t GroupOf(const AttentionArgs& args) { return args.heads / args.kv_heads; }
// Returns a view of args.document_starts, [documents + 1].
inline std::span<const int32_t> StartsOf(const AttentionArgs& args) {
  return {args.document_starts, static_cast<size_t>(args.documents) + 1};
}

// Returns the graph for all documents of a forward call at once. REQUIRES: IsUniform(args).
CudnnGraphKey UniformKeyOf(const AttentionArgs& args);
// Returns the graph of the gradient for one document and as many heads as fit the workspace, where
// their number divides that of all heads. Returns nullopt if documents are not uniform or not even
// one head of keys and values fits. The documents are then passed as packed documents. REQUIRES:
// args.forward.documents > 0.
std::optional<CudnnGraphKey> UniformKeyOf(const AttentionBackwardArgs& args);

// Both cut packed documents into runs (document_runs.h). They return an empty list if a document is
// empty, if the documents cannot be cut so that cuDNN takes them, and if `takes_packed` is false.
// `takes_packed` says whether packed documents may be used on this device. In the gradient, a
// document that is too long for one call becomes a run in blocks of BlockLengthOf (cudnn_blocks.h).
// `workspace_bytes` is the size of the forward pass's workspace. REQUIRES: CudnnMayTake(args).
std::vector<DocumentRun> RunsOf(const AttentionArgs& args, int64_t workspace_bytes,
                                bool takes_packed);
std::vector<DocumentRun> RunsOf(const AttentionBackwardArgs& args, bool takes_packed);
// Returns the length of the blocks for a document of `tokens` tokens: the greatest one, up to
// 16,384, that fits the workspace with one head of keys and values, and of which a block has few
// enough elements to count in 32 bits. It is a length of CudnnLengthBucket and less than `tokens`.
// Returns 0 if none fits, or if blocks would be so short that adding up their parts takes too long.
// Also returns 0 if a document of the call is longer than the window, because the device's own
// kernels then skip what no token sees.
int64_t BlockLengthOf(const AttentionBackwardArgs& args, int64_t tokens);
// Both return the graphs of a run. This is one graph or, for a run in blocks, the causal graph for
// blocks on the diagonal and then the graph without a mask for those below it.
std::vector<CudnnGraphKey> KeysOfRun(const AttentionArgs& args, const DocumentRun& run);
std::vector<CudnnGraphKey> KeysOfRun(const AttentionBackwardArgs& args, const DocumentRun& run);

// Returns the graphs of both directions of a call. A direction that cuDNN does not take has none.
// The gradient has none if args.workspace_bytes is 0. `workspace_bytes` and `takes_packed` are
// those of RunsOf.
std::vector<CudnnGraphKey> GraphsOf(const AttentionBackwardArgs& args, int64_t workspace_bytes,
                                    bool takes_packed);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_

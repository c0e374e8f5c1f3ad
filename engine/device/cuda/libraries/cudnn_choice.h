// Decides which calls of attention cuDNN takes, and into which graphs each call is cut. The answers
// depend on shapes, documents' lengths among them, and on the alignment of operands alone. The
// user's choice (base/kernel_choices.h) is applied before, in cuda_kernels.cc.
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

// Return true if dtype, sizes (CudnnTakesHeads) and alignment suit cuDNN, and there are tokens but
// neither softcaps nor sinks. cuDNN still does not take a call that the functions below cannot cut
// into graphs.
bool CudnnTakes(const AttentionArgs& args);
bool CudnnTakes(const AttentionBackwardArgs& args);

// Returns true if all documents have one length that is a multiple of 512, and a document has few
// enough elements for cuDNN to count them in 32 bits. Documents that are not uniform are passed as
// packed documents.
bool IsUniform(const AttentionArgs& args);

// Returns the number of query heads for each head of keys and values.
inline int64_t GroupOf(const AttentionArgs& args) { return args.heads / args.kv_heads; }
// Returns args.document_starts, [documents + 1].
inline std::span<const int32_t> StartsOf(const AttentionArgs& args) {
  return {args.document_starts, static_cast<size_t>(args.documents) + 1};
}

// Returns the graph for all documents of a call. REQUIRES: IsUniform(args).
CudnnGraphKey UniformKeyOf(const AttentionArgs& args);
// Returns the graph for one document and as many heads as fit the workspace. Returns nullopt if
// documents are not uniform or not even one head of keys and values fits. The documents are then
// passed as packed documents.
std::optional<CudnnGraphKey> UniformKeyOf(const AttentionBackwardArgs& args);

// Cut packed documents into runs. They return an empty list if the documents cannot be cut so that
// cuDNN takes them. REQUIRES: CudnnTakes(args). `takes_packed` says that packed documents may be
// used on this device. For the gradient, a document that is too long for one call becomes a run in
// blocks of BlockLengthOf (cudnn_blocks.h).
std::vector<DocumentRun> RunsOf(const AttentionArgs& args, int64_t workspace_bytes,
                                bool takes_packed);
std::vector<DocumentRun> RunsOf(const AttentionBackwardArgs& args, bool takes_packed);
// Returns the longest block for the document of `tokens` that fits the workspace with one head of
// keys and values. It is a CudnnLengthBucket and shorter than the document. Returns 0 if none fits,
// if blocks would be so short that adding up their parts takes too long, or if a document is longer
// than the window, for which our own kernels skip blocks.
int64_t BlockLengthOf(const AttentionBackwardArgs& args, int64_t tokens);
// Return the graphs of a run: one or, for a run in blocks, the one on the diagonal and the one
// below it.
std::vector<CudnnGraphKey> KeysOfRun(const AttentionArgs& args, const DocumentRun& run);
std::vector<CudnnGraphKey> KeysOfRun(const AttentionBackwardArgs& args, const DocumentRun& run);

// Returns the graphs of both directions of a call. A direction that cuDNN does not take has none,
// and the gradient has none without a workspace. `workspace_bytes` is that of the forward pass.
std::vector<CudnnGraphKey> GraphsOf(const AttentionBackwardArgs& args, int64_t workspace_bytes,
                                    bool takes_packed);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_

// Which calls of attention cuDNN takes, and the graphs that each is cut into. All of it depends on
// shapes alone, documents' lengths among them.
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

// By dtype, sizes and alignment. What the functions below do not cut into graphs is not taken
// either.
bool CudnnTakes(const AttentionArgs& args);
bool CudnnTakes(const AttentionBackwardArgs& args);

// Whether all documents have one length that is a multiple of 512; others go as packed documents.
bool IsUniform(const AttentionArgs& args);

// Query heads of one key and value.
inline int64_t GroupOf(const AttentionArgs& args) { return args.heads / args.kv_heads; }
// [documents + 1]
inline std::span<const int32_t> StartsOf(const AttentionArgs& args) {
  return {args.document_starts, static_cast<size_t>(args.documents) + 1};
}

// The graph of all documents of a call. REQUIRES: IsUniform.
CudnnGraphKey UniformKeyOf(const AttentionArgs& args);
// The graph of one document and of as many heads as fit the workspace; nullopt where documents are
// not uniform, or not even one head of keys and values fits: they go as packed documents.
std::optional<CudnnGraphKey> UniformKeyOf(const AttentionBackwardArgs& args);

// Cuts packed documents into runs; returns none if cuDNN does not take the call. In the gradient,
// documents that are too long for one call go by blocks (cudnn_blocks.h) of BlockLengthOf.
std::vector<DocumentRun> RunsOf(const AttentionArgs& args, int64_t workspace_bytes,
                                bool takes_packed);
std::vector<DocumentRun> RunsOf(const AttentionBackwardArgs& args, bool takes_packed);
// The longest blocks that fit the workspace with one head of keys and values, shorter than the
// document; 0 where they do not fit or would be so short that adding up their parts does not pay.
int64_t BlockLengthOf(const AttentionBackwardArgs& args, int64_t tokens);
// The graphs of a run: one; of a run in blocks, that on the diagonal and that below it.
std::vector<CudnnGraphKey> KeysOfRun(const AttentionArgs& args, const DocumentRun& run);
std::vector<CudnnGraphKey> KeysOfRun(const AttentionBackwardArgs& args, const DocumentRun& run);

// The graphs of both directions of a call, of the forward pass alone if the gradient has no
// workspace. `workspace_bytes`: of the forward pass.
std::vector<CudnnGraphKey> GraphsOf(const AttentionBackwardArgs& args, int64_t workspace_bytes,
                                    bool takes_packed);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_

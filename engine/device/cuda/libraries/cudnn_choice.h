// Which calls of attention cuDNN takes, and the graphs that each is cut into. All of it depends on
// shapes alone, documents' lengths among them.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_

#include <cstdint>
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

// The graph of a call of uniform documents: all of them; backward, one of them and as many heads as
// fit the workspace, kv_heads 0 if not even one does.
CudnnGraphKey UniformKeyOf(const AttentionArgs& args);
CudnnGraphKey UniformKeyOf(const AttentionBackwardArgs& args);

// How packed documents are cut; none if the call is not taken.
std::vector<DocumentRun> RunsOf(const AttentionArgs& args, int64_t workspace_bytes,
                                bool takes_packed);
std::vector<DocumentRun> RunsOf(const AttentionBackwardArgs& args, bool takes_packed);
// The graph of a run.
CudnnGraphKey KeyOfRun(const AttentionArgs& args, const DocumentRun& run);
CudnnGraphKey KeyOfRun(const AttentionBackwardArgs& args, const DocumentRun& run);

// The graphs of both directions of a call, of the forward pass alone if the gradient has no
// workspace. `workspace_bytes`: of the forward pass.
std::vector<CudnnGraphKey> GraphsOf(const AttentionBackwardArgs& args, int64_t workspace_bytes,
                                    bool takes_packed);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_CHOICE_H_

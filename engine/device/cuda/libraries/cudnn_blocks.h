// The gradient of attention over one document that is too long for a call of cuDNN, computed by
// blocks of queries and keys.
//
// The statistics of a query, log(sum(exp(scale q.k))) over all its keys, are known from the forward
// pass, and rowsum(dO * O) follows from whole rows. With both, the part of the gradient that comes
// from some queries and some keys can be computed from these queries and keys alone. So each block
// of queries is combined with its own block of keys, with a causal mask, and with each block of
// keys before it, without a mask (Liu et al. 2023, Ring Attention). All blocks have the same
// length, except that the document's last one may be shorter. Lengths and offsets in device memory
// tell cuDNN so. Therefore two graphs suffice for all documents with one length of blocks.
//
// cuDNN 9.19 gives deterministic parts in BF16 only. For dQ in FP32 it would add by atomics, and it
// refuses dK and dV in FP32 if query heads share them. The parts are added in FP32, and the sum is
// rounded once. The parts of dQ are added over ascending blocks of keys, those of dK and dV over
// ascending blocks of queries. A single call of cuDNN rounds the sum only. Here each part is
// rounded too, by at most 2^-8 of its size. If parts do not cancel, the norm of that error is about
// that of the last rounding. The dK and dV of a single call are sums of BF16 parts as well if query
// heads share them.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_BLOCKS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_BLOCKS_H_

#include <cstdint>
#include <functional>

#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/cuda/libraries/document_runs.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// The parts of a call's workspace in device memory, for one head of keys and values at a time. In
// the shapes, `tokens` and `length` are the run's, and `group` is the number of query heads for
// each head of keys and values. The pointers are valid as long as args.workspace.
struct CudnnBlockWorkspace {
  // REQUIRES: run.in_blocks().
  CudnnBlockWorkspace(const AttentionBackwardArgs& args, const DocumentRun& run);

  // Lengths and offsets (WriteIndex) of a block of run.length tokens, and those of a last block
  // that is shorter. If no block is shorter, `last_index` is not used.
  char *index = nullptr, *last_index = nullptr;
  float* statistics = nullptr;                  // [tokens, group]
  float *dk_sum = nullptr, *dv_sum = nullptr;   // [tokens, head_dim], [tokens, value_dim]
  float* dq_sum = nullptr;                      // [length, group, head_dim]
  char* dq_part = nullptr;                      // [length, group, head_dim], BF16
  char *dk_part = nullptr, *dv_part = nullptr;  // [length, head_dim], [length, value_dim], BF16
  char* rest = nullptr;                         // cuDNN's own workspace
  int64_t rest_bytes = 0;                       // negative: args.workspace is too small
};

// Queues the graph of `key`. Returns 0 for success, or an error as CudnnGraphs::Run does.
using RunCudnnGraph = std::function<int(const CudnnGraphKey& key, CudnnAddresses addresses,
                                        void* workspace, int64_t workspace_bytes)>;

// Queues the gradients of all heads of the run's document, one head of keys and values after
// another. Returns 0 for success, or the first error, which is one of `run_graph` or a cudaError_t.
// `run_graph` is used during the call only. REQUIRES: run.in_blocks(), and the graphs of
// KeysOfRun(args, run) exist and need a workspace of at most CudnnBlockWorkspace::rest_bytes.
int CudnnBackwardByBlocks(void* stream, const AttentionBackwardArgs& args, const DocumentRun& run,
                          const RunCudnnGraph& run_graph);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_BLOCKS_H_

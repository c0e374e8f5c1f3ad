// The gradient of attention over one document that is too long for a call of cuDNN's, by blocks of
// queries and keys.
//
// The statistics of a query, log(sum(exp(scale q.k))) over all of its keys, are known from the
// forward pass, and rowsum(dO * O) follows from whole rows: with both, the gradient over some
// queries and some keys is what cuDNN computes of these alone. So a block of queries is called with
// each block of keys up to its own, causally with its own and without a mask with those before
// (Liu et al. 2023, Ring Attention). All blocks have one length but the document's last one, whose
// calls are told that it is shorter, so that two graphs do for documents of all lengths.
//
// cuDNN 9.19 gives deterministic parts in BF16 alone: dQ in FP32 has it add by atomics, and dK and
// dV in FP32 it refuses where query heads share them. The parts are added in FP32, dQ's over
// ascending blocks of keys, dK's and dV's over ascending blocks of queries, and the sum is rounded
// once. Against one call, which rounds the sum alone, each part is rounded too, by 2^-9 of it at
// most: where parts do not cancel, that is as much in the norm as the last rounding. One call's own
// dK and dV are sums of BF16 parts already where query heads share them.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_BLOCKS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_BLOCKS_H_

#include <cstdint>
#include <functional>

#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/cuda/libraries/document_runs.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// The workspace of a call, in device memory.
struct CudnnBlockWorkspace {
  // REQUIRES: run.in_blocks().
  CudnnBlockWorkspace(const AttentionBackwardArgs& args, const DocumentRun& run);

  // Lengths and offsets of a block of run.length tokens, and of the last one.
  char *index = nullptr, *last_index = nullptr;
  float* statistics = nullptr;                  // [tokens, group]
  float *dk_sum = nullptr, *dv_sum = nullptr;   // [tokens, head_dim]
  float* dq_sum = nullptr;                      // [length, group, head_dim]
  char* dq_part = nullptr;                      // [length, group, head_dim], BF16
  char *dk_part = nullptr, *dv_part = nullptr;  // [length, head_dim], BF16
  char* rest = nullptr;                         // cuDNN's own
  int64_t rest_bytes = 0;
};

// Queues a graph; 0 or an error, as CudnnGraphs::Run.
using RunCudnnGraph = std::function<int(const CudnnGraphKey& key, CudnnAddresses addresses,
                                        void* workspace, int64_t workspace_bytes)>;

// The gradients of all heads of the run's document, one head of keys and values after another.
// REQUIRES: run.in_blocks(), and there are graphs of KeysOfRun within rest_bytes. Returns 0 or the
// first error.
int CudnnBackwardByBlocks(void* stream, const AttentionBackwardArgs& args, const DocumentRun& run,
                          const RunCudnnGraph& run_graph);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_BLOCKS_H_

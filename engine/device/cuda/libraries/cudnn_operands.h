// Computes the operand addresses of a call for a graph of cuDNN, and describes packed documents to
// the device.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_

#include <cstdint>
#include <span>

#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// Rounds up to 256 bytes, the alignment of the parts of a workspace.
inline int64_t CudnnAligned(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Return the addresses of the operands, starting at `token` and at the first query head of
// `kv_head`. The statistics are left out.
CudnnAddresses AddressesOf(const AttentionArgs& args, int64_t token, int64_t kv_head);
CudnnAddresses AddressesOf(const AttentionBackwardArgs& args, int64_t token, int64_t kv_head);

// Queues the writing of documents' lengths and offsets to `index`, device memory of
// cuda::kPackedIndexBytes. Document d has tokens [starts[d], starts[d + 1]), counted from starts[0]
// on. Returns a cudaError_t. REQUIRES: at most cuda::kPackedDocumentsMax documents.
int WriteIndex(void* stream, const CudnnGraphKey& key, std::span<const int32_t> starts,
               void* index);
// Adds to a graph's operands the addresses of the lengths and offsets that WriteIndex writes to the
// two indexes. Queries and keys may share one index. `backward` is CudnnGraphKey::backward.
void AddIndex(bool backward, void* of_queries, void* of_keys, CudnnAddresses* addresses);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_

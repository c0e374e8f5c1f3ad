// Where the operands of a call lie for a graph of cuDNN's, and what the device is told of packed
// documents.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_

#include <cstdint>
#include <span>

#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// Parts of a workspace begin at multiples of 256 bytes.
inline int64_t CudnnAligned(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The operands from `token` and from the first query head of `kv_head` on, without statistics.
CudnnAddresses AddressesOf(const AttentionArgs& args, int64_t token, int64_t kv_head);
CudnnAddresses AddressesOf(const AttentionBackwardArgs& args, int64_t token, int64_t kv_head);

// Writes lengths and offsets of the documents that lie between neighbours of `starts` ([documents +
// 1], in tokens, counted from the first) to `index`, device memory of cuda::kPackedIndexBytes.
// Returns a cudaError_t.
int WriteIndex(void* stream, const CudnnGraphKey& key, std::span<const int32_t> starts,
               void* index);
// Adds where the index of the documents' queries and of their keys lies; it may be the same.
void AddIndex(bool backward, void* of_queries, void* of_keys, CudnnAddresses* addresses);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_

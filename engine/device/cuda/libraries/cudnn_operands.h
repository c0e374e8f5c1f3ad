// Computes the addresses of operands for a graph of cuDNN (cudnn_graphs.h), and writes the lengths
// and offsets of packed documents to device memory.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_

#include <cstdint>
#include <span>

#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// Returns `bytes` rounded up to a multiple of 256, the alignment of the parts of a workspace.
inline int64_t CudnnAligned(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Both return the addresses of the operands' elements at `token` and at the first head that belongs
// to `kv_head`, a head of keys and values. The statistics, lengths and offsets are left out.
// REQUIRES: operands are BF16.
CudnnAddresses AddressesOf(const AttentionArgs& args, int64_t token, int64_t kv_head);
CudnnAddresses AddressesOf(const AttentionBackwardArgs& args, int64_t token, int64_t kv_head);

// Queues the writing of documents' lengths and offsets to `index`, device memory of
// cuda::kPackedIndexBytes. Document d has the tokens [starts[d], starts[d + 1]). Offsets are
// counted from token starts[0] on, in elements, by the distance between tokens that `key` has for
// each tensor. `starts` is read during the call only. `index` must stay valid until the stream has
// run what reads it. `stream` is a cudaStream_t. Returns a cudaError_t, 0 if the writing was
// queued. REQUIRES: `starts` has 1 to cuda::kPackedDocumentsMax + 1 elements.
int WriteIndex(void* stream, const CudnnGraphKey& key, std::span<const int32_t> starts,
               void* index);
// Adds to `addresses` those of the lengths and offsets that WriteIndex has written, in place of
// earlier ones: of_queries is the index of the queries' documents, and of_keys that of the keys'.
// Attention by blocks (cudnn_blocks.h) has queries of one block and keys of another; otherwise both
// are the same index. `backward` is CudnnGraphKey::backward.
void AddIndex(bool backward, void* of_queries, void* of_keys, CudnnAddresses* addresses);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_OPERANDS_H_

// BF16 attention by cuDNN: its fused forward pass (SDPA) and the deterministic gradient. Loaded at
// run time, as cuBLASLt is.
//
// Documents of one length, a multiple of 512, go as they are; all others as packed documents, by
// lengths and offsets that the device is told (on Hopper: elsewhere it has not been looked at). A
// graph takes half a second to build, so that packed documents are cut into runs for which few are
// to do (document_runs.h), and built ahead of the call that needs them. The gradient's workspace
// grows with the square of the length (cuDNN 9.19 on Hopper: 2 bytes a head, query and key), so it
// is called for as many documents and heads at once as fit; a document for which not even the heads
// of one key and value fit goes by blocks of queries and keys, whose parts are added up
// (cudnn_blocks.h; on Hopper, as packed documents: elsewhere such calls are not taken). Which calls
// are taken, and how they are cut, depends on shapes alone, documents' lengths among them
// (cudnn_choice.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_ATTENTION_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_ATTENTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// Thread safety: all methods may be called from any thread.
class CudnnAttention {
 public:
  // For the device of the calling thread. Unavailable: cuDNN is not found, or too old, or this
  // build has been made without its headers.
  static absl::StatusOr<std::unique_ptr<CudnnAttention>> Load();
  virtual ~CudnnAttention() = default;

  virtual CudaLibrary Library() const = 0;
  // As those of CudaApi: 0 = success, kNotTaken, from kAttentionFailed on an error of cuDNN's, or a
  // cudaError_t.
  virtual int Forward(void* stream, const AttentionArgs& args, void* workspace,
                      int64_t workspace_bytes) = 0;
  virtual int Backward(void* stream, const AttentionBackwardArgs& args) = 0;
  // As CudaApi::PrepareAttention: a graph is built on a thread that does nothing else, in the order
  // in which they are asked for. A call whose graph is not built yet waits for it.
  virtual void Prepare(const AttentionBackwardArgs& args, int64_t workspace_bytes) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_ATTENTION_H_

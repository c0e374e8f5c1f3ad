// BF16 attention by cuDNN, NVIDIA's library: its fused forward pass (SDPA) and the deterministic
// gradient. cuDNN is loaded at run time, like cuBLASLt.
//
// cuDNN computes by graphs. A graph is a plan for one shape, which takes half a second to build.
// Documents that all have one length, a multiple of 512, are passed as they are, with exceptions
// for size (IsUniform and UniformKeyOf in cudnn_choice.h). Others are passed as packed documents:
// one graph takes documents of any lengths up to its own, with their lengths and offsets in device
// memory. Packed documents are used on Hopper only, because they were not tested elsewhere. They
// are cut into runs so that few graphs suffice (document_runs.h). Graphs are built ahead of the
// call that needs them.
//
// The gradient's workspace grows with the square of the length (cuDNN 9.19 on Hopper: 2 bytes for
// each head, query and key). So only as many heads and packed documents are computed at once as fit
// the workspace. Documents that are not packed are computed one at a time. If a document does not
// fit even with one head of keys and values, it is computed by blocks of queries and keys, whose
// parts are added up (cudnn_blocks.h). Blocks are packed documents too. If blocks would be too
// short (BlockLengthOf in cudnn_choice.h), the call is not taken.
//
// Windows are passed as bounds of the diagonal band. If any document is longer than the window,
// none is computed by blocks. Calls with softcaps or sinks are not taken, nor those with values
// wider than keys.
//
// The choice of calls that are taken, and their cuts, depend on shapes (which include documents'
// lengths and the size of the workspace) and on the alignment of operands alone (cudnn_choice.h).
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
  // Loads cuDNN for the calling thread's current device. Returns the errors of CudnnGraphs::Open,
  // and Unavailable if CUDA fails or this build was made without cuDNN's headers.
  static absl::StatusOr<std::unique_ptr<CudnnAttention>> Load();
  virtual ~CudnnAttention() = default;

  // Returns cuDNN's name, version and file. The file is followed by the number of shapes for which
  // cuDNN had no graph so far, if there are any.
  virtual CudaLibrary Library() const = 0;
  // Forward and Backward do as CudaApi::Attention and CudaApi::AttentionBackward. They return 0 for
  // success, kNotTaken, kAttentionFailed or a greater number for an error of cuDNN, or a
  // cudaError_t. A call whose graph is not built yet waits for it. REQUIRES: the calling thread's
  // current device is that of Load.
  virtual int Forward(void* stream, const AttentionArgs& args, void* workspace,
                      int64_t workspace_bytes) = 0;
  virtual int Backward(void* stream, const AttentionBackwardArgs& args) = 0;
  // Does as CudaApi::PrepareAttention. Returns at once. A thread of this object builds the graphs,
  // in the order in which they were requested.
  virtual void Prepare(const AttentionBackwardArgs& args, int64_t workspace_bytes) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_ATTENTION_H_

// BF16 attention by cuDNN: its fused forward pass (SDPA) and the deterministic gradient. cuDNN is
// loaded at run time, like cuBLASLt.
//
// Documents that all have one length, a multiple of 512, are passed as they are. All others are
// passed as packed documents, with lengths and offsets in device memory. Packed documents are used
// on Hopper only, because they were not tested elsewhere.
//
// A graph takes half a second to build. Therefore packed documents are cut into runs so that few
// graphs suffice (document_runs.h), and graphs are built ahead of the call that needs them.
//
// The gradient's workspace grows with the square of the length (cuDNN 9.19 on Hopper: 2 bytes for
// each head, query and key). So as many documents and heads are computed at once as fit. If a
// document does not fit even with the heads of one key and value, it is computed by blocks of
// queries and keys, whose parts are added up (cudnn_blocks.h); this too needs packed documents.
//
// Windows are passed as bounds of the diagonal band. If any document is longer than the window,
// none is computed by blocks. Calls with softcaps or sinks are not taken, nor those with values
// wider than keys.
//
// The choice of the calls and their cuts depends on shapes, documents' lengths among them, and on
// the alignment of operands alone (cudnn_choice.h).
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

  // Returns cuDNN's name, version and file, and what cuDNN refused so far.
  virtual CudaLibrary Library() const = 0;
  // Do as CudaApi::Attention and CudaApi::AttentionBackward. They return 0 for success, kNotTaken,
  // a number of kAttentionFailed or above for an error of cuDNN, or a cudaError_t.
  virtual int Forward(void* stream, const AttentionArgs& args, void* workspace,
                      int64_t workspace_bytes) = 0;
  virtual int Backward(void* stream, const AttentionBackwardArgs& args) = 0;
  // Does as CudaApi::PrepareAttention. A thread of its own builds the graphs in the order
  // requested. A call whose graph is not built yet waits for it.
  virtual void Prepare(const AttentionBackwardArgs& args, int64_t workspace_bytes) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_ATTENTION_H_

// Matrix products by cuBLASLt, which is loaded at run time.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUBLAS_LT_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUBLAS_LT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// Thread safety: all methods may be called from any thread.
class CublasLt {
 public:
  // Loads the library for the calling thread's current device. `split_sums` allows it to split a
  // product's sums into parts. Returns Unavailable if the library is not found (listing the places
  // that were searched) or cannot be used.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load(bool split_sums);
  virtual ~CublasLt() = default;

  virtual CudaLibrary Library() const = 0;
  // Does as CudaApi::Product, but returns a cublasStatus_t, 0 for success.
  virtual int Product(void* stream, const CudaProduct& product, void* workspace,
                      int64_t workspace_bytes) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUBLAS_LT_H_

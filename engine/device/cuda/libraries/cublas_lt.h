// Products by cuBLASLt, loaded at run time.
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
  // The device of the calling thread is the one that products will run on. `split_sums`: whether a
  // product's sums may be cut into parts. Unavailable: the library is not found, with where it was
  // looked for.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load(bool split_sums);
  virtual ~CublasLt() = default;

  virtual CudaLibrary Library() const = 0;
  // As CudaApi::Product; a cublasStatus_t, 0 = success.
  virtual int Product(void* stream, const CudaProduct& product, void* workspace,
                      int64_t workspace_bytes) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUBLAS_LT_H_

// Products by cuBLASLt, loaded at run time.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_CUBLAS_LT_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_CUBLAS_LT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/device/cuda/cuda_api.h"

namespace megatrain {

// Thread safety: all methods may be called from any thread.
class CublasLt {
 public:
  // Unavailable: the library is not found, with where it was looked for. The device of the calling
  // thread is the one that products will run on.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load();
  virtual ~CublasLt() = default;

  // "cuBLASLt 13.1.0".
  virtual std::string Version() const = 0;
  // As CudaApi::Product; a cublasStatus_t, 0 = success.
  virtual int Product(void* stream, const CudaProduct& product, void* workspace,
                      int64_t workspace_bytes) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_CUBLAS_LT_H_

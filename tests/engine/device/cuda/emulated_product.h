// Products in cuBLAS' terms, by plain loops on the host.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_PRODUCT_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_PRODUCT_H_

#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// 0, or the cublasStatus_t of what cuBLASLt refuses.
int CheckEmulatedProduct(const CudaProduct& product);

// REQUIRES: it is not refused.
void EmulatedProduct(const CudaProduct& product);
// Makes the element in the middle of the result wrong, or NaN.
void SpoilProduct(const CudaProduct& product, bool nan);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_PRODUCT_H_

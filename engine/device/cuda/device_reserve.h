// The device memory that stays free beside a job, for modules and graphs that are loaded later
// (CudaDevice::ReserveBytes). Needs neither a GPU nor CUDA.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_DEVICE_RESERVE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_DEVICE_RESERVE_H_

#include <cstdint>

namespace megatrain {

// The least. What is loaded for shapes to come, cuDNN's graphs among them, takes no more than the
// first use of everything did. Not measured on a GPU.
inline constexpr int64_t kDeviceReserveBytesMin = int64_t{512} << 20;

// The reserve where the size of what is loaded is not known: the GPU is not at hand, or its kernels
// were not warmed up. An estimate, not measured on a GPU.
inline constexpr int64_t kUnknownReserveBytes = int64_t{1536} << 20;

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_DEVICE_RESERVE_H_

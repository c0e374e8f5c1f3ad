// Constants for Device::ReserveBytes of the cuda device: the device memory that stays free beside a
// job, for modules and graphs that are loaded later. Their use needs neither a GPU nor CUDA.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_DEVICE_RESERVE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_DEVICE_RESERVE_H_

#include <cstdint>

namespace megatrain {

// The smallest reserve. Loading the libraries and calling every kernel once (WarmUp) takes some
// device memory. If that is more than this size, the reserve is as much again, because what is
// loaded later, such as cuDNN's graphs, is assumed to take no more. This size is the whole reserve
// of a GPU that uses the host's memory, and of any GPU if CudaApi::loads_lazily is false. Both this
// size and that assumption are estimates, not measured on a GPU.
inline constexpr int64_t kDeviceReserveBytesMin = int64_t{512} << 20;

// The reserve if it is not known how much WarmUp takes, because the GPU is not there or because
// WarmUp failed. It is an estimate, not measured on a GPU.
inline constexpr int64_t kUnknownReserveBytes = int64_t{1536} << 20;

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_DEVICE_RESERVE_H_

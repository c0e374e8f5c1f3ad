// Environment variables that switch off fast paths, to find the one that gives wrong results:
//   MEGATRAIN_CUDNN=off                    attention by cuDNN
//   MEGATRAIN_TENSOR_CORE_ATTENTION=off    the device's own attention on tensor cores
//   MEGATRAIN_VECTOR_LOADS=off             moves of 16 bytes at once, except in the two above
//   MEGATRAIN_SPLIT_SUMS=off               sums that are cut into parts, those of products included
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_SWITCHES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_SWITCHES_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/device/cuda/kernels/launchers.h"

namespace megatrain {

inline constexpr char kCudnnSwitch[] = "MEGATRAIN_CUDNN";

// The fast paths that may be taken. By default all are.
struct CudaSwitches {
  bool cudnn = true;
  cuda::FastPaths kernels;
};

// Reads the variables of this process. Returns InvalidArgument, naming the variable, if a variable
// is set to anything but `off`.
absl::StatusOr<CudaSwitches> ReadCudaSwitches();

// Returns a text such as ", without tensor-core attention, split sums (set aside by the
// environment)", or "" if none of switches.kernels is off. cuDNN is left out because it is listed
// with the libraries.
std::string DescribeSetAside(const CudaSwitches& switches);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_SWITCHES_H_

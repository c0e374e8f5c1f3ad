// How a program opens a GPU. Handed to the engine from outside: it is built and tested without
// CUDA.
#ifndef MEGATRAIN_ENGINE_DEVICE_GPU_OPENER_H_
#define MEGATRAIN_ENGINE_DEVICE_GPU_OPENER_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace megatrain {

class Device;  // engine/device/device.h

// Sets GPU `ordinal` up. Errors say what to do. NotFound: there is nothing to use, so that another
// device may be chosen. Any other: there is something, and it is not as it should be.
using GpuOpener = std::function<absl::StatusOr<std::unique_ptr<Device>>(int ordinal)>;

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_GPU_OPENER_H_

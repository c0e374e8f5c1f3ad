// The function type by which a program gives the engine access to GPUs, so that the engine is built
// and tested without CUDA.
#ifndef MEGATRAIN_ENGINE_DEVICE_GPU_OPENER_H_
#define MEGATRAIN_ENGINE_DEVICE_GPU_OPENER_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace megatrain {

class Device;  // engine/device/device.h

// Opens GPU `ordinal` (from 0) and sets it up. Returns NotFound if there is no driver or no GPU at
// all, or if the program is built without CUDA. Then another device may be chosen. Returns
// InvalidArgument if there are GPUs but none of this number, or if an environment variable has a
// wrong value. Any other error means that this GPU cannot be used, for example because the driver
// is too old.
using GpuOpener = std::function<absl::StatusOr<std::unique_ptr<Device>>(int ordinal)>;

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_GPU_OPENER_H_

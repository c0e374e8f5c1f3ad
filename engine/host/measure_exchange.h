// Measures how fast the GPUs of a host exchange data, by an all-gather such as jobs make. It takes
// a tenth of a second beside the start of NCCL.
#ifndef MEGATRAIN_ENGINE_HOST_MEASURE_EXCHANGE_H_
#define MEGATRAIN_ENGINE_HOST_MEASURE_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/device.h"

namespace megatrain {

// Returns the bytes a second that the slowest GPU receives from the others, while all of them
// gather `bytes` bytes (HardwareRates::collective_bytes_per_second). During the call each GPU
// allocates `bytes` and NcclScratchBytes of device memory, besides NCCL's own. Returns
// ResourceExhausted if a GPU lacks that memory, and the errors of `load_nccl`,
// CreateNcclCommunicator, the exchange and the devices. REQUIRES: there are several GPUs, and
// nothing else uses them.
absl::StatusOr<double> MeasureExchange(const std::vector<std::shared_ptr<Device>>& gpus,
                                       const NcclLoader& load_nccl, int64_t bytes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MEASURE_EXCHANGE_H_

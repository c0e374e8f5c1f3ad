// Measures how fast GPUs exchange data, by an all-gather such as jobs make. It takes a tenth of a
// second beside the start of NCCL.
#ifndef MEGATRAIN_ENGINE_HOST_MEASURE_EXCHANGE_H_
#define MEGATRAIN_ENGINE_HOST_MEASURE_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/device.h"

namespace megatrain {

// Both functions return the bytes a second that the slowest GPU receives from the others, while all
// of them gather `bytes` bytes (HardwareRates::collective_bytes_per_second). During the call each
// GPU allocates `bytes` and NcclScratchBytes of device memory, besides NCCL's own. REQUIRES: there
// are several GPUs, and nothing else uses them.
//
// Measures for the rank of `bootstrap`, whose GPU is `device`. All ranks must call it, and get the
// same rate. Returns ResourceExhausted, on all ranks, if one cannot allocate its memory, whatever
// the reason; `bootstrap` can then still be used. It cannot be used after the other errors, which
// are those of CreateNcclCommunicator, the exchange and the device. `nccl` and `device` must live
// during the call.
absl::StatusOr<double> MeasureExchange(Device* device, NcclApi* nccl,
                                       const std::shared_ptr<Communicator>& bootstrap,
                                       int64_t bytes);
// Measures for the GPUs of this process. Returns the same errors and those of `load_nccl`, which is
// called once for each GPU and must not be null.
absl::StatusOr<double> MeasureExchange(const std::vector<std::shared_ptr<Device>>& gpus,
                                       const NcclLoader& load_nccl, int64_t bytes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MEASURE_EXCHANGE_H_

// Measures a machine's rates: a few kernels, copies and updates, about a second together.
#ifndef MEGATRAIN_ENGINE_HOST_MEASURE_HARDWARE_H_
#define MEGATRAIN_ENGINE_HOST_MEASURE_HARDWARE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/host/hardware_rates.h"
#include "engine/host/session.h"

namespace megatrain {

// What is measured: operands of the size that training has, beyond the processors' own caches.
struct MeasurementSizes {
  int64_t tokens = 0;  // rows of a product
  int64_t hidden = 0;  // its inner dimension; heads of head_dim divide it
  int64_t wide = 0;    // its columns
  int64_t head_dim = 0;
  int64_t state_elements = 0;  // that the optimizer updates, 12 bytes each and a gradient of 4
  int64_t copy_bytes = 0;      // at most what the state takes
  int repetitions = 0;         // the fastest counts
  // Times that all of it is measured, one kind after another: what else runs for a moment, as when
  // a daemon is started, slows all repetitions of a kind in one round, and few kinds in all rounds.
  int rounds = 1;
};
inline constexpr MeasurementSizes kCpuMeasurement = {.tokens = 512,
                                                     .hidden = 1024,
                                                     .wide = 4096,
                                                     .head_dim = 64,
                                                     .state_elements = int64_t{4} << 20,
                                                     .copy_bytes = int64_t{32} << 20,
                                                     .repetitions = 2,
                                                     .rounds = 4};
// 0.27 TFLOP a product: a third of a millisecond of the fastest card known. 2.3 GiB of device
// memory, 1 GiB of it for the gradient of attention, and 1 GiB of the host's.
inline constexpr MeasurementSizes kGpuMeasurement = {.tokens = 4096,
                                                     .hidden = 4096,
                                                     .wide = 8192,
                                                     .head_dim = 128,
                                                     .state_elements = int64_t{64} << 20,
                                                     .copy_bytes = int64_t{256} << 20,
                                                     .repetitions = 8};

// Takes memory meanwhile and gives it back. What else runs on the machine at the time makes the
// rates lower. ResourceExhausted if there is not that much memory.
absl::StatusOr<HardwareRates> MeasureHardware(const Session& session,
                                              const MeasurementSizes& sizes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MEASURE_HARDWARE_H_

// Measures a machine's rates with a few kernels, copies and updates. It takes about two seconds, on
// a GPU about six.
#ifndef MEGATRAIN_ENGINE_HOST_MEASURE_HARDWARE_H_
#define MEGATRAIN_ENGINE_HOST_MEASURE_HARDWARE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/host/hardware_rates.h"
#include "engine/host/session.h"

namespace megatrain {

// The sizes of the operands. They are like those of training and larger than most processors'
// caches.
struct MeasurementSizes {
  int64_t tokens = 0;  // the rows of a product
  int64_t hidden = 0;  // its inner dimension, a multiple of head_dim
  int64_t wide = 0;    // its columns
  int64_t head_dim = 0;
  int64_t state_elements = 0;  // parameters to update: 12 bytes of state and 4 of gradient each
  int64_t copy_bytes = 0;      // of a copy in either direction
  // The repetitions of each measurement. The fastest one counts. For copies in both directions at
  // once, and for updates beside them, the mean counts.
  int repetitions = 0;
  // If above 0, products are repeated for so long, and those of the second half count. A card that
  // computes for long lowers its clock to keep to its power limit. A measured H200 multiplied at
  // 795 TFLOP/s for a few milliseconds and at 676 TFLOP/s over three seconds.
  double product_seconds = 0;
  // The number of times that the whole series of measurements is made; the fastest counts. A
  // program that is busy for a moment slows all repetitions of one measurement, but rarely in every
  // round.
  int rounds = 1;
};
inline constexpr MeasurementSizes kCpuMeasurement = {.tokens = 256,
                                                     .hidden = 1024,
                                                     .wide = 4096,
                                                     .head_dim = 64,
                                                     .state_elements = int64_t{4} << 20,
                                                     .copy_bytes = int64_t{32} << 20,
                                                     .repetitions = 2,
                                                     .rounds = 3};
// A product is 0.27 TFLOP, a third of a millisecond on an H200. The measurement takes 2.3 GiB of
// device memory, 1 GiB of it for the gradient of attention, and 1.5 GiB of host memory.
inline constexpr MeasurementSizes kGpuMeasurement = {.tokens = 4096,
                                                     .hidden = 4096,
                                                     .wide = 8192,
                                                     .head_dim = 128,
                                                     .state_elements = int64_t{64} << 20,
                                                     .copy_bytes = int64_t{256} << 20,
                                                     .repetitions = 8,
                                                     .product_seconds = 1};

// Measures the rates on the session's first device. collective_bytes_per_second and
// network_bytes_per_second are not measured. On the cpu device, the rates of copies beside each
// other, host_memory_bytes_per_second and launch_seconds are not measured either. What is not
// measured is 0. Allocates memory for the time of the call. Other load on the machine lowers the
// result. Returns ResourceExhausted if there is not enough memory, and the errors of the device.
// REQUIRES: no job uses the session meanwhile; all sizes, repetitions and rounds are above 0
// (product_seconds may be 0).
absl::StatusOr<HardwareRates> MeasureHardware(const Session& session,
                                              const MeasurementSizes& sizes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MEASURE_HARDWARE_H_

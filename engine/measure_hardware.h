// Measures a machine's rates: a few kernels, copies and updates, some tenths of a second together.
#ifndef MEGATRAIN_ENGINE_MEASURE_HARDWARE_H_
#define MEGATRAIN_ENGINE_MEASURE_HARDWARE_H_

#include "absl/status/statusor.h"
#include "engine/hardware_rates.h"

namespace megatrain {

// With `threads` threads (>= 1), on the cpu device; takes about 128 MiB of memory meanwhile, and
// gives it back. What else runs on the machine at the time makes the rates lower.
// ResourceExhausted if there is not that much memory.
absl::StatusOr<HardwareRates> MeasureHardware(int threads);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEASURE_HARDWARE_H_

// What a machine does in a second: measured once at start, used for predictions and for the share
// of the device's speed that training reaches.
#ifndef MEGATRAIN_ENGINE_HOST_HARDWARE_RATES_H_
#define MEGATRAIN_ENGINE_HOST_HARDWARE_RATES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace megatrain {

// At one precision. All 0: not measured.
struct PrecisionRates {
  double matmul_flops_per_second = 0;  // matrix products, a multiply-add counted as 2
  // Causal attention, the masked half not counted: two products forward, five backward.
  double attention_flops_per_second = 0;
  double attention_backward_flops_per_second = 0;
  double element_bytes_per_second = 0;  // element-wise kernels, bytes read and written
  // The optimizer: as the schedule counts, state read and written, gradient read.
  double update_bytes_per_second = 0;

  bool operator==(const PrecisionRates&) const = default;
};

struct HardwareRates {
  PrecisionRates fp32, bf16;
  // Each direction by itself, not throttled. 0: not measured.
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  // Each while the other direction is used too: some links are slower then. 0 on the cpu device.
  double h2d_beside_d2h_bytes_per_second = 0;
  double d2h_beside_h2d_bytes_per_second = 0;
  double launch_seconds = 0;  // from one short kernel to the next; 0 on the cpu device
  int threads = 0;            // that it was measured with
  // The device's kernels, the optimizer and the copies take the same processors from each other.
  bool device_is_host = false;

  bool measured() const { return threads > 0; }
  bool operator==(const HardwareRates&) const = default;
};

// Of the rate at which a plain kernel that moves the optimizer's bytes uses the host's memory, what
// the optimizer reaches. It reads and writes 24 bytes of state a parameter and reads its gradient:
// 28 bytes with FP32 gradients, 26 with BF16.
inline constexpr double kUpdateShareOfHostMemory = 0.97;

// Puts a given rate, NAME=VALUE, in the place of one that was measured. Names and units:
//   dram                GB/s that the host's processors read and write together; the optimizer has
//                       kUpdateShareOfHostMemory of it. Copies over the link do not take from it.
//   link                GB/s of each direction while the other is used too
//   products            TFLOP/s
//   attention_forward   TFLOP/s
//   attention_backward  TFLOP/s
//   memory              TB/s of the device's, read and written
//   launch              microseconds from one short kernel to the next
// 1 GB is 1e9 bytes. Those of a precision hold for both. InvalidArgument: another name, or a value
// that is not above 0.
absl::Status SetRate(const std::string& assignment, HardwareRates* rates);
absl::Status SetRates(const std::vector<std::string>& assignments, HardwareRates* rates);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_HARDWARE_RATES_H_

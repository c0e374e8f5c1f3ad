// What a machine does in a second: measured once at start, used for predictions and for the share
// of the device's speed that training reaches.
#ifndef MEGATRAIN_ENGINE_HARDWARE_RATES_H_
#define MEGATRAIN_ENGINE_HARDWARE_RATES_H_

namespace megatrain {

// At one precision. All 0: not measured.
struct PrecisionRates {
  double matmul_flops_per_second = 0;     // matrix products, a multiply-add counted as 2
  double attention_flops_per_second = 0;  // causal attention, the masked half not counted
  double element_bytes_per_second = 0;    // element-wise kernels, bytes read and written
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
  int threads = 0;  // that it was measured with
  // The device's kernels, the optimizer and the copies take the same processors from each other.
  bool device_is_host = false;

  bool measured() const { return threads > 0; }
  bool operator==(const HardwareRates&) const = default;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HARDWARE_RATES_H_

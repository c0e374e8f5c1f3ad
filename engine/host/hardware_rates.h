// The speeds of a machine's parts. They are measured once when a program starts
// (measure_hardware.h) or come from a MachineProfile. They are used to predict times and to report
// the share of the device's speed that training reaches.
#ifndef MEGATRAIN_ENGINE_HOST_HARDWARE_RATES_H_
#define MEGATRAIN_ENGINE_HOST_HARDWARE_RATES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace megatrain {

// Rates at one precision; all 0 if they were not measured.
struct PrecisionRates {
  double matmul_flops_per_second = 0;  // matrix products; a multiply-add counts as 2
  // Causal attention, without the masked half: two products forward, five backward.
  double attention_flops_per_second = 0;
  double attention_backward_flops_per_second = 0;
  double element_bytes_per_second = 0;  // element-wise kernels; bytes read and written
  // The optimizer: bytes of state read and written, and of the gradient read.
  double update_bytes_per_second = 0;

  bool operator==(const PrecisionRates&) const = default;
};

// The rates of a machine. They are all 0 if nothing was measured.
struct HardwareRates {
  PrecisionRates fp32, bf16;
  // Copies between host and device in one direction alone, unthrottled.
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  // Copies in one direction while the other is busy, because some links are slower then; 0 on the
  // cpu device.
  double h2d_beside_d2h_bytes_per_second = 0;
  double d2h_beside_h2d_bytes_per_second = 0;
  // The bytes of host memory that the optimizer and copies of both directions move together. They
  // share the memory's channels. 0 if it is not known; predictions then take each of them at its
  // own rate.
  double host_memory_bytes_per_second = 0;
  // The rate at which a device receives from others of the job while it sends as much. A job of
  // several processes with GPUs measures it over all of them, whatever lies between. If it is not
  // known (0), predictions take the link's rate, and plans do not choose by it.
  double collective_bytes_per_second = 0;
  // The rate at which a machine receives from others, through all its ports, while it sends as
  // much. It is given for plans, and never measured. If it is not known (0), predictions let
  // devices of several machines exchange at collective_bytes_per_second.
  double network_bytes_per_second = 0;
  double launch_seconds = 0;  // time from one short kernel to the next; 0 on the cpu device
  int threads = 0;            // threads used for the measurement
  // True if the device's kernels, the optimizer and the copies compete for the same processors (the
  // cpu device).
  bool device_is_host = false;

  bool known() const { return threads > 0; }
  bool operator==(const HardwareRates&) const = default;
};

// Replaces each measured rate of `*rates` by that of `other` if that is faster: two measurements of
// one machine. The rates between devices and machines stay, and so do `threads` and device_is_host.
// REQUIRES: `other` has launch_seconds if `*rates` has.
void MergeFaster(const HardwareRates& other, HardwareRates* rates);

// The optimizer's rate as a share of the rate at which a plain kernel moves the same bytes through
// host memory. For each parameter the optimizer reads and writes 24 bytes of state and reads the
// gradient: 28 bytes with FP32 gradients, 26 with BF16.
inline constexpr double kUpdateShareOfHostMemory = 0.97;

// Replaces a measured rate by a given one, "NAME=VALUE". Names and units:
//   dram                GB/s that the host's processors read and write together; the optimizer gets
//                       kUpdateShareOfHostMemory of it. Copies over the link do not reduce it:
//                       host_memory is not known from then on.
//   host_memory         GB/s that the optimizer and copies over the link move together
//   link                GB/s of each direction, alone and while the other is used too
//   products            TFLOP/s
//   attention_forward   TFLOP/s
//   attention_backward  TFLOP/s
//   memory              TB/s of the device's memory, read and written
//   collective          GB/s that each of several devices receives from the others
//   network             GB/s that each of several machines receives from the others
//   launch              microseconds from one short kernel to the next
// 1 GB is 1e9 bytes. Rates that depend on the precision are set for both. Returns InvalidArgument
// for another name, and for a value that is no finite number above 0; `*rates` is then unchanged.
// SetRates applies several in order and stops at the first error, with the earlier ones applied.
absl::Status SetRate(const std::string& assignment, HardwareRates* rates);
absl::Status SetRates(const std::vector<std::string>& assignments, HardwareRates* rates);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_HARDWARE_RATES_H_

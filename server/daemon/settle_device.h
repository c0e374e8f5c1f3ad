// Remembers the kind of device, cpu or cuda, that a daemon's jobs run on from one run of the daemon
// to the next. On another kind a job computes other bits, and one that was begun on a GPU takes a
// hundred times as long on a cpu. A driver that is not loaded after a restart must not cause that
// silently.
#ifndef MEGATRAIN_SERVER_DAEMON_SETTLE_DEVICE_H_
#define MEGATRAIN_SERVER_DAEMON_SETTLE_DEVICE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/manager/job_ledger.h"

namespace megatrain {

// The file in the state directory that holds "cpu" or "cuda" and a line end.
inline constexpr char kDeviceFileName[] = "device";

struct FoundDevice {
  std::string id;         // EngineHost's: "cpu", "cuda:0"
  std::string why_cpu;    // why `auto` took the cpu; empty otherwise
  bool is_named = false;  // by the configuration, which does not say auto
  bool accepted = false;  // a change, for this start
};

// Compares the device's kind with the remembered one, and remembers it. Returns the kind before if
// it has changed, else nullopt.
//
// A change is accepted if the operator decided on it, by naming the device or by FoundDevice::
// accepted, or if it is from cpu to cuda and no job has begun. Each job that has begun and not
// ended then gets an event. Other changes are Unavailable: nothing is remembered, and the message
// says what to do. Further errors: the file cannot be read or written, or an event not stored.
absl::StatusOr<std::optional<std::string>> SettleDevice(const FoundDevice& found,
                                                        JobLedger* ledger);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_SETTLE_DEVICE_H_

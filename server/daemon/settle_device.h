// The kind of device that a daemon's jobs run on, cpu or cuda, remembered from one life of the
// daemon to the next: on another kind the same job computes other bits, and one that was begun on a
// GPU takes a hundred times as long on a cpu. A driver that is not loaded after a restart must not
// bring that about unsaid.
#ifndef MEGATRAIN_SERVER_DAEMON_SETTLE_DEVICE_H_
#define MEGATRAIN_SERVER_DAEMON_SETTLE_DEVICE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/manager/job_ledger.h"

namespace megatrain {

// In the state directory: "cpu" or "cuda" and a line end.
inline constexpr char kDeviceFileName[] = "device";

struct FoundDevice {
  std::string id;         // EngineHost's: "cpu", "cuda:0"
  std::string why_cpu;    // why `auto` took the cpu; empty otherwise
  bool is_named = false;  // by the configuration, which does not say auto
  bool accepted = false;  // a change, for this start
};

// Compares the device's kind with the remembered one and remembers it. A change that the operator
// has decided on, by a name or by accepting it, is told to each job that has begun and not ended,
// as an event; so is one from cpu to cuda where no job has begun, to nobody. Returns the kind
// before if it has changed. Unavailable for a change that nobody decided on: nothing is remembered
// then, and the message says what to do. Other errors: the file cannot be read or written, an event
// not stored.
absl::StatusOr<std::optional<std::string>> SettleDevice(const FoundDevice& found,
                                                        JobLedger* ledger);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_SETTLE_DEVICE_H_

// Remembers, from one run of the daemon to the next, the kind of device (cpu or cuda) that its jobs
// run on. On another kind a job computes other bits, and one that was begun on a GPU takes much
// longer on a cpu. A driver that is not loaded after a restart must not cause that silently.
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
  std::string id;         // of the EngineHost's first device: "cpu", "cuda:0"
  std::string why_cpu;    // the reason for which `auto` took the cpu; else ""
  bool is_named = false;  // the configuration names it, and not auto
  bool accepted = false;  // the operator accepts a change, at this start
};

// Compares the device's kind with the remembered one, and remembers it. Returns the kind before if
// it has changed. Returns nullopt if it has not, or if none was remembered. `ledger` is used during
// the call only.
//
// A change is accepted if the operator decided on it (`is_named` or `accepted`), or if it is from
// cpu to cuda and every job that has begun has ended. Each job that has begun and not ended gets an
// event. For any other change nothing is remembered, and SettleDevice returns Unavailable with a
// message that says what to do. It returns DataLoss if the file holds another text or is no file,
// errors of FileSystem if the file cannot be read or written, and errors of JobLedger::Change if an
// event cannot be stored.
absl::StatusOr<std::optional<std::string>> SettleDevice(const FoundDevice& found,
                                                        JobLedger* ledger);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_SETTLE_DEVICE_H_

// Unary calls made as fast as they are answered, or at a rate, from one thread.
#ifndef MEGATRAIN_TESTS_BENCH_DAEMON_CALL_LOAD_H_
#define MEGATRAIN_TESTS_BENCH_DAEMON_CALL_LOAD_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/e2e/daemon_process.h"

namespace megatrain {

struct CallLoadOptions {
  int connections = 8;
  int outstanding = 32;         // calls under way at a time, of a closed loop
  double calls_per_second = 0;  // an open loop: calls begin by the clock, whatever the answers do
  double seconds = 10;
};

struct CallLoadResult {
  int64_t gets = 0, lists = 0;
  double seconds = 0;
  // From the moment at which a call was to begin to its answer.
  std::vector<double> get_milliseconds, list_milliseconds;
};

// GetJob of `job` and ListJobs, by turns. An error if a call fails.
absl::StatusOr<CallLoadResult> RunCallLoad(const DaemonProcess& daemon, const std::string& job,
                                           const CallLoadOptions& options);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_DAEMON_CALL_LOAD_H_

// These functions bring the processes of a run together before its first step. All processes call
// them in the same order. In a run of one process, LeaderFirst calls `work`, and the others do
// nothing and return OK.
#ifndef MEGATRAIN_ENGINE_RUN_START_PROCESSES_H_
#define MEGATRAIN_ENGINE_RUN_START_PROCESSES_H_

#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/host/memory_budget.h"
#include "engine/plan/step_prediction.h"
#include "engine/run/start/run_context.h"

namespace megatrain {

// Calls `work` in the processes for which `leads` is true, one for each directory. Once that has
// succeeded, calls it in the others, which can then use what the leaders have made. Returns the
// errors of `work` and of the communicator. If `work` fails in a leader, the other processes wait
// until the leader calls AbortAll (exchange.h).
absl::Status LeaderFirst(RunContext& run, bool leads, absl::FunctionRef<absl::Status()> work);

// Compares the values `own` of all processes. If a process has others than rank 0, all processes
// return the same FailedPrecondition; its message names the rank, the key and both values. The
// message begins with `what`, the name of what is compared ("job file"), and ends with `advice`,
// what the user should do. Also returns the errors of the communicator. REQUIRES: no key or value
// has a zero byte.
absl::Status CheckSameInAll(RunContext& run, absl::string_view what,
                            const std::map<std::string, std::string>& own,
                            absl::string_view advice);

// Makes all processes plan alike. Replaces `budget` by the least memory that any of them has (and
// the largest device reserve), and `machine` by that of the first process. Reports a message of the
// run (RunContext::Say) if all have some of a kind of memory and it differs by more than a tenth.
// Returns the errors of the communicator.
absl::Status ShareBudget(RunContext& run, MemoryBudget& budget, MachineSpeed& machine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_PROCESSES_H_

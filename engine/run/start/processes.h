// These functions bring the processes of a run together before its first step. All processes call
// them in the same order. For a process alone they do nothing more than its own part.
#ifndef MEGATRAIN_ENGINE_RUN_START_PROCESSES_H_
#define MEGATRAIN_ENGINE_RUN_START_PROCESSES_H_

#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/host/memory_budget.h"
#include "engine/plan/step_prediction.h"
#include "engine/run/start/run_context.h"

namespace megatrain {

// Calls `work` in the process that leads and, once that has succeeded, in the others, which then
// find its results. Returns its errors. If the leader fails, the others wait until its caller has
// called AbortAll.
absl::Status LeaderFirst(RunContext& run, absl::FunctionRef<absl::Status()> work);

// Returns the text that the first process gives. Returns the errors of the communicator.
absl::StatusOr<std::string> OfFirst(RunContext& run, const std::string& own);

// Returns FailedPrecondition, naming the rank, the key and both values, if a process has other
// values than the first. `what` says what they are of, and `advice` what to do. Also returns the
// errors of the communicator. REQUIRES: no key or value has a zero byte.
absl::Status CheckSameInAll(RunContext& run, absl::string_view what,
                            const std::map<std::string, std::string>& own,
                            absl::string_view advice);

// Makes all processes plan alike. Replaces `budget` by the least memory that any of them has (and
// the largest device reserve), and `machine` by that of the first process. Says so if the memory
// differs by more than a tenth. Returns the errors of the communicator.
absl::Status ShareBudget(RunContext& run, MemoryBudget& budget, MachineSpeed& machine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_PROCESSES_H_

// Checks what callers ask of jobs, and makes the errors that they get.
#ifndef MEGATRAIN_SERVER_MANAGER_REQUEST_CHECKS_H_
#define MEGATRAIN_SERVER_MANAGER_REQUEST_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/identity/caller.h"
#include "server/jobs/job.h"

namespace megatrain {

// Returns FailedPrecondition (ILLEGAL_TRANSITION): "job ID is STATE and cannot be OPERATION" with
// `advice` behind it.
absl::Status NotInThisState(const Job& job, const std::string& operation,
                            const std::string& advice);

// Check a field of a new job. A request_id has at most 64 letters, digits and characters of "-_.".
// Return INVALID_FIELD, or NOT_PERMITTED for a priority that only administrators may give.
absl::Status CheckRequestId(const std::string& request_id);
absl::Status CheckPriority(const Caller& caller, int priority);

// Returns the sections of allow_change of `sections` and `more` together, each once, ascending.
// Returns INVALID_FIELD for one that no run may change.
absl::StatusOr<std::vector<std::string>> WithSections(std::vector<std::string> sections,
                                                      const std::vector<std::string>& more);

// Returns the error of a plan as callers get it. InvalidArgument, NotFound, FailedPrecondition,
// OutOfRange, Unimplemented and DataLoss come from what the job names, and become InvalidArgument
// (INVALID_JOB_FILE). Others are returned unchanged.
absl::Status PlanError(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_REQUEST_CHECKS_H_

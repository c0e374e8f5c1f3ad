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

// Returns FailedPrecondition (ILLEGAL_TRANSITION) with the message "job ID is STATE and cannot be
// OPERATION", followed by `advice`, which begins with its own punctuation or is empty.
absl::Status NotInThisState(const Job& job, const std::string& operation,
                            const std::string& advice);

// Checks the request_id of a new job. Returns InvalidArgument (INVALID_FIELD) unless it has at most
// 64 letters, digits and characters of "-_.". It may be empty.
absl::Status CheckRequestId(const std::string& request_id);
// Checks the priority of a new job. Returns InvalidArgument (INVALID_FIELD) unless it is from
// kPriorityMin to kPriorityMax, and PermissionDenied (NOT_PERMITTED) if it is above 0 and the
// caller is no administrator.
absl::Status CheckPriority(const Caller& caller, int priority);

// Returns the sections that are in `sections` or `more`, each once, in ascending order: the value
// of Job::allow_change. Returns InvalidArgument (INVALID_FIELD) for a section that no resumed run
// may change.
absl::StatusOr<std::vector<std::string>> WithSections(std::vector<std::string> sections,
                                                      const std::vector<std::string>& more);

// Returns the error `status` of planning a job as callers get it. InvalidArgument, NotFound,
// FailedPrecondition, OutOfRange, Unimplemented and DataLoss come from what the job names, and
// become InvalidArgument (INVALID_JOB_FILE). Other statuses are returned unchanged.
absl::Status PlanError(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_REQUEST_CHECKS_H_

// Parses the filter of ListJobs, which chooses jobs by comparisons joined by AND and OR:
//   state = RUNNING OR state = PAUSED AND user != anna   (those of the two states, without anna's)
// OR binds tighter than AND, and there are no parentheses. A comparison is FIELD = VALUE or FIELD
// != VALUE. FIELD is state, reason, user or display_name. A VALUE that is empty, or has ASCII
// characters other than letters, digits, '_', '-', '.' and '@', stands in single or double quotes,
// in which a backslash takes the next character as it is.
#ifndef MEGATRAIN_SERVER_API_JOB_FILTER_H_
#define MEGATRAIN_SERVER_API_JOB_FILTER_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "server/jobs/job.h"

namespace megatrain {

// Returns true for a job that the filter lets through. An empty function lets all through.
using JobFilter = std::function<bool(const Job& job)>;

// Returns an empty function for a text of nothing but white space. Returns InvalidArgument
// (INVALID_FILTER) if the text is not understood or longer than 4096 bytes; the message says why.
// The filter may be called from several threads.
//
// Names, AND and OR are case-sensitive. Values of state and reason are the API's names; others are
// not understood. `REASON_UNSPECIFIED` means that a job has no reason.
absl::StatusOr<JobFilter> ParseJobFilter(const std::string& text);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_JOB_FILTER_H_

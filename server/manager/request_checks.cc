#include "server/manager/request_checks.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/engine.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

// A UUID has 36.
constexpr size_t kRequestIdBytesMax = 64;

}  // namespace

absl::Status NotInThisState(const Job& job, const std::string& operation,
                            const std::string& advice) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is ", JobStateName(job.state),
                                                 " and cannot be ", operation, advice)),
      v1::ILLEGAL_TRANSITION, {{"job", job.id}, {"state", JobStateName(job.state)}});
}

absl::Status CheckRequestId(const std::string& request_id) {
  const bool sound = request_id.size() <= kRequestIdBytesMax &&
                     std::all_of(request_id.begin(), request_id.end(), [](char c) {
                       return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                              c == '_' || c == '.';
                     });
  if (sound) return absl::OkStatus();
  return InvalidField("request_id", absl::StrCat("expects a UUID: at most ", kRequestIdBytesMax,
                                                 " letters, digits, and - _ ."));
}

absl::Status CheckPriority(const Caller& caller, int priority) {
  if (priority < kPriorityMin || priority > kPriorityMax) {
    return InvalidField("priority", absl::StrCat("expects ", kPriorityMin, " to ", kPriorityMax,
                                                 ", got ", priority));
  }
  if (priority > 0 && !caller.administrator) {
    return WithReason(absl::PermissionDeniedError(absl::StrCat(
                          "priority: ", priority,
                          " is above 0, which is for administrators; 0 and less is for all")),
                      v1::NOT_PERMITTED);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> WithSections(std::vector<std::string> sections,
                                                      const std::vector<std::string>& more) {
  sections.insert(sections.end(), more.begin(), more.end());
  for (const std::string& section : sections) {
    if (absl::c_linear_search(kChangeableSections, section)) continue;
    return InvalidField("allow_change",
                        absl::StrCat("\"", section,
                                     "\" is none of the sections that a resumed run "
                                     "may change: ",
                                     absl::StrJoin(kChangeableSections, ", ")));
  }
  absl::c_sort(sections);
  sections.erase(std::unique(sections.begin(), sections.end()), sections.end());
  return sections;
}

absl::Status PlanError(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return WithReason(absl::InvalidArgumentError(status.message()), v1::INVALID_JOB_FILE);
    default:
      return status;
  }
}

}  // namespace megatrain

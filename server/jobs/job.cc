#include "server/jobs/job.h"

namespace megatrain {
namespace {

const std::string& None() {
  static const std::string name = "NONE";
  return name;
}

}  // namespace

const std::string& JobReasonName(JobReason reason) {
  return reason == JobReason::kNone ? None() : v1::Job::Reason_Name(static_cast<int>(reason));
}

std::optional<JobReason> ParseJobReason(const std::string& name) {
  if (name == None()) return JobReason::kNone;
  v1::Job::Reason reason = v1::Job::REASON_UNSPECIFIED;
  v1::Job::Reason_Parse(name, &reason);
  if (reason == v1::Job::REASON_UNSPECIFIED) return std::nullopt;
  return static_cast<JobReason>(reason);
}

}  // namespace megatrain

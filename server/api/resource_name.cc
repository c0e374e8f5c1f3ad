#include "server/api/resource_name.h"

#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

constexpr std::string_view kJobs = "jobs/";
constexpr size_t kIdBytesMax = 100;

// What an id may look like: no separators, nothing a file name could not hold. Whether there is
// such a job is another question.
bool IsId(std::string_view id) {
  if (id.empty() || id.size() > kIdBytesMax) return false;
  for (const char c : id) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_') return false;
  }
  return true;
}

// What was sent, fit for a message.
std::string Shown(const std::string& name) {
  constexpr size_t kShownMax = 120;
  std::string shown;
  for (const char c : name.substr(0, kShownMax)) shown += absl::ascii_isprint(c) ? c : '?';
  return absl::StrCat("\"", shown, name.size() > kShownMax ? "...\"" : "\"");
}

}  // namespace

std::string JobName(const std::string& id) { return absl::StrCat("jobs/", id); }

std::string CheckpointName(const std::string& job_id, int64_t step) {
  return absl::StrCat("jobs/", job_id, "/checkpoints/", step);
}

absl::StatusOr<std::string> ParseJobName(const std::string& field, const std::string& name) {
  if (name.empty()) return InvalidField(field, "is missing; expects jobs/{job}");
  if (name.rfind(kJobs, 0) != 0 || !IsId(name.substr(kJobs.size()))) {
    return InvalidField(field, absl::StrCat("expects jobs/{job}, got ", Shown(name)));
  }
  return name.substr(kJobs.size());
}

absl::StatusOr<JobCheckpointName> ParseCheckpointName(const std::string& field,
                                                      const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  JobCheckpointName result;
  const bool good = (parts.size() == 2 || parts.size() == 4) && parts[0] == "jobs" &&
                    IsId(parts[1]) &&
                    (parts.size() == 2 ||
                     (parts[2] == "checkpoints" && absl::SimpleAtoi(parts[3], &result.step) &&
                      result.step > 0 && parts[3] == absl::StrCat(result.step)));
  if (!good) {
    return InvalidField(
        field,
        absl::StrCat("expects jobs/{job} or jobs/{job}/checkpoints/{step}, got ", Shown(name)));
  }
  result.job_id = std::string(parts[1]);
  return result;
}

absl::Status CheckNodeName(const std::string& field, const std::string& name) {
  if (name == kNodeName) return absl::OkStatus();
  if (name.empty()) return InvalidField(field, absl::StrCat("is missing; expects ", kNodeName));
  return WithReason(
      absl::NotFoundError(absl::StrCat("no node ", Shown(name), "; this daemon's is ", kNodeName)),
      v1::NODE_NOT_FOUND);
}

}  // namespace megatrain

#include "client/context/job_name.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace megatrain::client {
namespace {

bool IsId(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
}

}  // namespace

absl::StatusOr<std::string> ParseJobName(const std::string& text) {
  const absl::string_view id = absl::StripPrefix(text, "jobs/");
  if (!IsId(id)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is no job's name; expects jobs/ID or ID, as `megatrain ls --all` shows"));
  }
  return absl::StrCat("jobs/", id);
}

absl::StatusOr<std::string> ParseJobOrCheckpointName(const std::string& text) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::StripPrefix(text, "jobs/"), '/');
  const bool is_checkpoint = parts.size() == 3 && IsId(parts[0]) && parts[1] == "checkpoints" &&
                             !parts[2].empty() &&
                             std::all_of(parts[2].begin(), parts[2].end(),
                                         [](unsigned char c) { return absl::ascii_isdigit(c); });
  if (is_checkpoint) return absl::StrCat("jobs/", parts[0], "/checkpoints/", parts[2]);
  return ParseJobName(text);
}

}  // namespace megatrain::client

#include "server/base/error_reason.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace megatrain {
namespace {

constexpr char kPayloadType[] = "megatrain/error_reason";
constexpr char kSeparator = '\0';

}  // namespace

absl::Status WithReason(absl::Status status, v1::ErrorReason reason,
                        std::vector<std::pair<std::string, std::string>> metadata) {
  std::string payload = v1::ErrorReason_Name(reason);
  for (const auto& [key, value] : metadata) {
    payload += kSeparator;
    payload += key;
    payload += kSeparator;
    payload += value;
  }
  status.SetPayload(kPayloadType, absl::Cord(payload));
  return status;
}

absl::Status JobNotFound(const std::string& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("there is no job ", id)), v1::JOB_NOT_FOUND,
                    {{"job", id}});
}

absl::Status InvalidField(const std::string& field, const std::string& message) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat(field, ": ", message)),
                    v1::INVALID_FIELD, {{"field", field}});
}

absl::Status CallerRefused(v1::ErrorReason reason, const std::string& message) {
  return WithReason(absl::UnauthenticatedError(message), reason);
}

absl::Status DaemonStopping() {
  return WithReason(absl::UnavailableError("the daemon is stopping"), v1::STOPPING);
}

std::optional<ErrorReasonInfo> ReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadType);
  if (!payload.has_value()) return std::nullopt;
  const std::vector<std::string> words = absl::StrSplit(std::string(*payload), kSeparator);
  ErrorReasonInfo info;
  info.reason = words[0];
  for (size_t i = 1; i + 1 < words.size(); i += 2)
    info.metadata.emplace_back(words[i], words[i + 1]);
  return info;
}

}  // namespace megatrain

#include "client/connection/rpc_error.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace megatrain::client {
namespace {

constexpr char kErrorDomain[] = "megatrain";
constexpr char kPayloadType[] = "google.rpc.ErrorInfo";

std::optional<google::rpc::ErrorInfo> InfoOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadType);
  google::rpc::ErrorInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return std::nullopt;
  return info;
}

}  // namespace

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The codes of Abseil and gRPC are the same numbers.
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info) && info.domain() == kErrorDomain) {
      result.SetPayload(kPayloadType, absl::Cord(info.SerializeAsString()));
    }
  }
  return result;
}

absl::Status WithMessage(const absl::Status& status, const std::string& message) {
  absl::Status result(status.code(), message);
  if (const std::optional<google::rpc::ErrorInfo> info = InfoOf(status); info.has_value()) {
    result.SetPayload(kPayloadType, absl::Cord(info->SerializeAsString()));
  }
  return result;
}

std::string ReasonOf(const absl::Status& status) {
  const std::optional<google::rpc::ErrorInfo> info = InfoOf(status);
  return info.has_value() ? info->reason() : "";
}

std::string MetadataOf(const absl::Status& status, const std::string& key) {
  const std::optional<google::rpc::ErrorInfo> info = InfoOf(status);
  if (!info.has_value()) return "";
  const auto found = info->metadata().find(key);
  return found == info->metadata().end() ? "" : found->second;
}

bool IsConnectionLoss(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return true;
    // What gRPC makes of a connection that is cut in the middle of a message.
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
      return ReasonOf(status).empty();
    default:
      return false;
  }
}

ExitCode ExitCodeOf(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  if (reason == "DOES_NOT_FIT" || reason == "EXCEEDS_USER_LIMIT") return kExitDoesNotFit;
  if (reason == "LIMIT_REACHED") return kExitNotPermitted;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotPermitted;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

std::string AdviceFor(const absl::Status& status) {
  static const std::map<std::string, std::string>& advice = *new std::map<std::string, std::string>{
      {"JOB_NOT_FOUND", "`megatrain ls --all` lists your jobs"},
      {"CHECKPOINT_NOT_FOUND",
       "`megatrain checkpoints JOB` lists what there is, `megatrain checkpoint JOB` asks a running "
       "job for one"},
      {"ILLEGAL_TRANSITION", "`megatrain show JOB` says what the job is doing and why"},
      {"DOES_NOT_FIT",
       "`megatrain plan JOB.yaml` shows what needs how much; a smaller training.micro_batch or "
       "data.sequence_length, training.gradient_dtype: bf16, or optimizer.max_gradient_norm: 0 "
       "need less"},
      {"REQUEST_ID_REUSED", "leave --request-id out for a new job"},
      {"OUTPUT_EXISTS", "name a directory that is empty or not there yet"},
      {"FILE_UNUSABLE", "put right what the message names, on the daemon's machine"},
      {"IN_USE", "wait until the other job has ended, or name another checkpoint.directory"},
      {"ANSWERS_UNREAD",
       "read the answers to earlier calls first: make fewer at a time, and no more connections"},
      {"UNAUTHENTICATED_CALLER", "ask the daemon's administrator for access"},
      {"TOKEN_INVALID",
       "the token may have been revoked: ask the daemon's administrator for another"},
      {"TOKEN_EXPIRED", "ask the daemon's administrator for another token"},
      {"UNKNOWN_ACCOUNT",
       "the daemon's administrator makes an account of that name on its machine"},
      {"NOT_PERMITTED", "the daemon's administrator may do it"},
      {"EXCEEDS_USER_LIMIT",
       "`megatrain plan JOB.yaml` shows what needs how much; the daemon's administrator sets the "
       "limit"},
      {"LIMIT_REACHED",
       "`megatrain ls` lists your jobs; `megatrain cancel JOB` takes one back, and exports end"},
      {"DISK_FULL", "make room on the daemon's disk: `megatrain info` shows what is free"},
      {"OVERLOADED", "try again in a moment"},
      {"STARTING", "try again in a moment: `megatrain info` shows when it is ready"},
      {"STOPPING", "jobs go on when the daemon is started again; try again then"},
      {"DEADLINE_PASSED", "the daemon is busy; try again"},
      {"CORRUPT_DATA", "`megatraind verify CHECKPOINT` on the daemon's machine names the bad file"},
      {"INTERNAL_ERROR", "the daemon's log says more: `journalctl -u megatraind`"},
  };
  const auto found = advice.find(ReasonOf(status));
  return found == advice.end() ? "" : found->second;
}

}  // namespace megatrain::client

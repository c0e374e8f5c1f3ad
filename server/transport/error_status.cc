#include "server/transport/error_status.h"

#include <simdjson.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "megatrain/v1/error_reason.pb.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

// Longer messages than a client's limit for metadata (8 KiB) would lose the whole status; the
// message travels twice.
constexpr size_t kMessageBytesMax = 3000;

// The bytes of metadata that gRPC sends for a byte of the message, which it percent-encodes.
size_t SentBytes(char c) { return c >= ' ' && c <= '~' && c != '%' ? 1 : 3; }

// Of errors that carry no reason: those the engine or a library made.
v1::ErrorReason GeneralReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return v1::INVALID_FIELD;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return v1::FILE_UNUSABLE;
    case absl::StatusCode::kAlreadyExists:
      return v1::OUTPUT_EXISTS;
    case absl::StatusCode::kUnauthenticated:
      return v1::UNAUTHENTICATED_CALLER;
    case absl::StatusCode::kPermissionDenied:
      return v1::NOT_PERMITTED;
    case absl::StatusCode::kResourceExhausted:
      return v1::DISK_FULL;
    case absl::StatusCode::kUnavailable:
      return v1::OVERLOADED;
    case absl::StatusCode::kDeadlineExceeded:
      return v1::DEADLINE_PASSED;
    case absl::StatusCode::kCancelled:
      return v1::CALL_CANCELLED;
    case absl::StatusCode::kDataLoss:
      return v1::CORRUPT_DATA;
    default:
      return v1::INTERNAL_ERROR;
  }
}

}  // namespace

std::string ValidUtf8(std::string text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return text;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return text;
}

std::string ReasonName(const absl::Status& status) {
  const std::optional<ErrorReasonInfo> info = ReasonOf(status);
  return info.has_value() ? info->reason : v1::ErrorReason_Name(GeneralReason(status.code()));
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message = ValidUtf8(std::string(status.message()));
  size_t end = 0;
  for (size_t sent = 0; end < message.size(); ++end) {
    sent += SentBytes(message[end]);
    if (sent > kMessageBytesMax) break;
  }
  if (end < message.size()) {
    // Not within a UTF-8 character.
    while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
    message.resize(end);
    message += " ...";
  }
  google::rpc::ErrorInfo info;
  info.set_domain(kErrorDomain);
  info.set_reason(ReasonName(status));
  if (const std::optional<ErrorReasonInfo> reason = ReasonOf(status)) {
    for (const auto& [key, value] : reason->metadata) {
      (*info.mutable_metadata())[key] = ValidUtf8(value);
    }
  }
  // The codes of Abseil and gRPC are the same numbers.
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  details.add_details()->PackFrom(info);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      details.SerializeAsString());
}

}  // namespace megatrain

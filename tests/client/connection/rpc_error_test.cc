#include "client/connection/rpc_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "megatrain/v1/error_reason.pb.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

grpc::Status Error(grpc::StatusCode code, const std::string& reason,
                   const std::string& domain = "megatrain") {
  google::rpc::ErrorInfo info;
  info.set_domain(domain);
  info.set_reason(reason);
  (*info.mutable_metadata())["job"] = "a1";
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(code, "what happened", details.SerializeAsString());
}

ExitCode CodeOf(grpc::StatusCode code, const std::string& reason) {
  return ExitCodeOf(FromGrpcStatus(Error(code, reason)));
}

TEST(RpcErrorTest, CarriesReasonAndMetadata) {
  const absl::Status status = FromGrpcStatus(Error(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), "what happened");
  EXPECT_EQ(ReasonOf(status), "JOB_NOT_FOUND");
  EXPECT_EQ(MetadataOf(status, "job"), "a1");
  EXPECT_EQ(MetadataOf(status, "other"), "");
  EXPECT_THAT(AdviceFor(status), HasSubstr("megatrain ls --all"));
}

TEST(RpcErrorTest, AnotherMessageChangesNothingElse) {
  const absl::Status status =
      WithMessage(FromGrpcStatus(Error(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND")), "gone");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), "gone");
  EXPECT_EQ(ReasonOf(status), "JOB_NOT_FOUND");
  EXPECT_EQ(MetadataOf(status, "job"), "a1");
  EXPECT_EQ(ReasonOf(WithMessage(absl::NotFoundError("a"), "b")), "");
}

TEST(RpcErrorTest, ErrorsOfOthersHaveNoReason) {
  EXPECT_EQ(ReasonOf(FromGrpcStatus(Error(grpc::StatusCode::NOT_FOUND, "X", "other.com"))), "");
  const absl::Status garbage =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL, "", "\xff\xff garbage"));
  EXPECT_EQ(ReasonOf(garbage), "");
  EXPECT_EQ(AdviceFor(garbage), "");
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(RpcErrorTest, ExitCodes) {
  using grpc::StatusCode;
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), kExitDone);
  EXPECT_EQ(CodeOf(StatusCode::INTERNAL, "INTERNAL_ERROR"), kExitFailed);
  EXPECT_EQ(CodeOf(StatusCode::DATA_LOSS, "CORRUPT_DATA"), kExitFailed);
  EXPECT_EQ(CodeOf(StatusCode::RESOURCE_EXHAUSTED, "DISK_FULL"), kExitFailed);
  EXPECT_EQ(CodeOf(StatusCode::INVALID_ARGUMENT, "INVALID_JOB_FILE"), kExitUsage);
  EXPECT_EQ(CodeOf(StatusCode::FAILED_PRECONDITION, "ILLEGAL_TRANSITION"), kExitUsage);
  EXPECT_EQ(CodeOf(StatusCode::ALREADY_EXISTS, "REQUEST_ID_REUSED"), kExitUsage);
  EXPECT_EQ(CodeOf(StatusCode::FAILED_PRECONDITION, "DOES_NOT_FIT"), kExitDoesNotFit);
  EXPECT_EQ(CodeOf(StatusCode::FAILED_PRECONDITION, "EXCEEDS_USER_LIMIT"), kExitDoesNotFit);
  EXPECT_EQ(CodeOf(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"), kExitNotFound);
  EXPECT_EQ(CodeOf(StatusCode::PERMISSION_DENIED, "NOT_PERMITTED"), kExitNotPermitted);
  EXPECT_EQ(CodeOf(StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED_CALLER"), kExitNotPermitted);
  EXPECT_EQ(CodeOf(StatusCode::RESOURCE_EXHAUSTED, "LIMIT_REACHED"), kExitNotPermitted);
  EXPECT_EQ(CodeOf(StatusCode::UNAVAILABLE, "STOPPING"), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::UnimplementedError("")), kExitUsage) << "an older daemon";
  EXPECT_EQ(ExitCodeOf(absl::OutOfRangeError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), kExitInterrupted);
}

TEST(RpcErrorTest, WhatIsALostConnection) {
  const auto is_loss = [](const grpc::Status& status) {
    return IsConnectionLoss(FromGrpcStatus(status));
  };
  EXPECT_TRUE(is_loss(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed")));
  EXPECT_TRUE(is_loss(Error(grpc::StatusCode::UNAVAILABLE, "STOPPING")));
  EXPECT_TRUE(is_loss(grpc::Status(grpc::StatusCode::INTERNAL, "RST_STREAM")));
  EXPECT_TRUE(is_loss(grpc::Status(grpc::StatusCode::CANCELLED, "")));
  EXPECT_TRUE(is_loss(grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed")));
  EXPECT_FALSE(is_loss(Error(grpc::StatusCode::INTERNAL, "INTERNAL_ERROR")));
  EXPECT_FALSE(is_loss(Error(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND")));
  EXPECT_FALSE(is_loss(Error(grpc::StatusCode::DATA_LOSS, "CORRUPT_DATA")));
}

// Every error that a user can mend says how.
TEST(RpcErrorTest, ReasonsHaveAdvice) {
  const std::vector<v1::ErrorReason> without = {v1::ERROR_REASON_UNSPECIFIED,
                                                v1::INVALID_FIELD,
                                                v1::INVALID_JOB_FILE,
                                                v1::INVALID_PAGE_TOKEN,
                                                v1::INVALID_FILTER,
                                                v1::NODE_NOT_FOUND,
                                                v1::CALL_CANCELLED};
  const auto* const reasons = v1::ErrorReason_descriptor();
  for (int i = 0; i < reasons->value_count(); ++i) {
    const auto value = static_cast<v1::ErrorReason>(reasons->value(i)->number());
    if (std::count(without.begin(), without.end(), value) > 0) continue;
    const std::string name = v1::ErrorReason_Name(value);
    EXPECT_NE(AdviceFor(FromGrpcStatus(Error(grpc::StatusCode::INTERNAL, name))), "") << name;
  }
}

}  // namespace
}  // namespace megatrain::client

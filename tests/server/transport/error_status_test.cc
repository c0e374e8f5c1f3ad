#include "server/transport/error_status.h"

#include <string>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "megatrain/v1/error_reason.pb.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

google::rpc::ErrorInfo InfoOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(details.message(), status.error_message());
  google::rpc::ErrorInfo info;
  EXPECT_TRUE(details.details_size() == 1 && details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.domain(), "megatrain");
  return info;
}

TEST(ErrorStatusTest, OkIsOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok()); }

TEST(ErrorStatusTest, CarriesCodeMessageReasonAndMetadata) {
  const grpc::Status status =
      ToGrpcStatus(WithReason(absl::NotFoundError("no job x"), v1::JOB_NOT_FOUND, {{"job", "x"}}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no job x");
  const google::rpc::ErrorInfo info = InfoOf(status);
  EXPECT_EQ(info.reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(info.metadata().at("job"), "x");
}

TEST(ErrorStatusTest, EveryErrorHasAReasonOfTheApi) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "something"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    v1::ErrorReason reason = v1::ERROR_REASON_UNSPECIFIED;
    EXPECT_TRUE(v1::ErrorReason_Parse(InfoOf(status).reason(), &reason)) << code;
    EXPECT_NE(reason, v1::ERROR_REASON_UNSPECIFIED) << code;
  }
}

TEST(ErrorStatusTest, AnErrorThatCarriesNoReasonHasThatOfItsCode) {
  using Code = absl::StatusCode;
  const std::vector<std::pair<Code, std::string>> reasons = {
      {Code::kCancelled, "CALL_CANCELLED"},
      {Code::kUnknown, "INTERNAL_ERROR"},
      {Code::kInvalidArgument, "INVALID_FIELD"},
      {Code::kDeadlineExceeded, "DEADLINE_PASSED"},
      {Code::kAlreadyExists, "OUTPUT_EXISTS"},
      {Code::kPermissionDenied, "NOT_PERMITTED"},
      {Code::kResourceExhausted, "DISK_FULL"},
      {Code::kOutOfRange, "INVALID_FIELD"},
      {Code::kInternal, "INTERNAL_ERROR"},
      {Code::kUnavailable, "OVERLOADED"},
      {Code::kDataLoss, "CORRUPT_DATA"},
      {Code::kUnauthenticated, "UNAUTHENTICATED_CALLER"}};
  for (const auto& [code, reason] : reasons) {
    EXPECT_EQ(ReasonName(absl::Status(code, "something")), reason);
  }
}

TEST(ErrorStatusTest, AMissingFileIsNoMissingJob) {
  for (const absl::Status& status : {absl::NotFoundError("/data/model: no such file"),
                                     absl::FailedPreconditionError("/data/model: is no model")}) {
    EXPECT_EQ(InfoOf(ToGrpcStatus(status)).reason(), "FILE_UNUSABLE");
  }
}

TEST(ErrorStatusTest, InvalidFieldNamesTheField) {
  const grpc::Status status = ToGrpcStatus(InvalidField("page_size", "expects 0 or more"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "page_size: expects 0 or more");
  EXPECT_EQ(InfoOf(status).reason(), "INVALID_FIELD");
  EXPECT_EQ(InfoOf(status).metadata().at("field"), "page_size");
}

TEST(ErrorStatusTest, LongMessagesAreCutBetweenCharacters) {
  std::string message = "a";
  while (message.size() < 10000) message += "\xC3\xA9";
  const grpc::Status status = ToGrpcStatus(absl::InternalError(message));
  // gRPC sends each of these bytes as three.
  EXPECT_LT(status.error_message().size(), 1010u);
  EXPECT_GT(status.error_message().size(), 990u);
  EXPECT_LT(status.error_details().size(), 1200u);
  // A message that is not UTF-8 would not parse.
  EXPECT_EQ(InfoOf(status).reason(), "INTERNAL_ERROR");
}

TEST(ErrorStatusTest, AMessageOf3000BytesIsWhole) {
  const std::string longest(3000, 'x');
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(longest)).error_message(), longest);
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(longest + "y")).error_message(), longest + " ...");
}

TEST(ErrorStatusTest, MessagesOfOtherBytesArriveToo) {
  const grpc::Status status = ToGrpcStatus(absl::NotFoundError("/data/\xFF\xFE: no such file"));
  EXPECT_EQ(status.error_message(), "/data/??: no such file");
  InfoOf(status);
  const grpc::Status of_job = ToGrpcStatus(
      WithReason(absl::NotFoundError("no such job"), v1::JOB_NOT_FOUND, {{"job", "\xFF"}}));
  EXPECT_EQ(InfoOf(of_job).metadata().at("job"), "?");
}

}  // namespace
}  // namespace megatrain

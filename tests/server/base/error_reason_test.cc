#include "server/base/error_reason.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ErrorReasonTest, TravelsWithTheStatus) {
  const absl::Status status =
      WithReason(absl::NotFoundError("no job a"), v1::JOB_NOT_FOUND, {{"job", "a"}, {"empty", ""}});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no job a");
  const auto info = ReasonOf(status);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, "JOB_NOT_FOUND");
  EXPECT_THAT(info->metadata, ElementsAre(Pair("job", "a"), Pair("empty", "")));
}

TEST(ErrorReasonTest, NoMetadata) {
  const auto info = ReasonOf(WithReason(absl::InternalError("x"), v1::INTERNAL_ERROR));
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, "INTERNAL_ERROR");
  EXPECT_TRUE(info->metadata.empty());
}

TEST(ErrorReasonTest, AStatusWithoutOne) {
  EXPECT_FALSE(ReasonOf(absl::InternalError("x")).has_value());
  EXPECT_FALSE(ReasonOf(absl::OkStatus()).has_value());
}

}  // namespace
}  // namespace megatrain

#include "server/base/exit_code.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(ExitCodeTest, IsWhatTheReadmeSays) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("a loss that is not finite")), 1);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("a flipped bit")), 1);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("a wrong key")), 2);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("no file")), 2);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("another job's checkpoint")), 2);
  EXPECT_EQ(ExitCodeOf(absl::UnimplementedError("a family")), 2);
  EXPECT_EQ(ExitCodeOf(absl::OutOfRangeError("a step beyond the last")), 2);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("does not fit")), 3);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("a signal")), 7);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("a device that may come")), 1);
}

}  // namespace
}  // namespace megatrain

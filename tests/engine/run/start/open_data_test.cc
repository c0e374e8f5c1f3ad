#include "engine/run/start/open_data.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace megatrain {
namespace {

TEST(AsInputErrorTest, WhatIsWrongWithDataIsNeitherADamagedCheckpointNorALossThatIsNotFinite) {
  for (const absl::Status& status : {absl::DataLossError("x"), absl::AbortedError("x")}) {
    EXPECT_EQ(AsInputError(status), absl::InvalidArgumentError("x"));
  }
  for (const absl::Status& status :
       {absl::OkStatus(), absl::NotFoundError("x"), absl::CancelledError("x")}) {
    EXPECT_EQ(AsInputError(status), status);
  }
}

}  // namespace
}  // namespace megatrain

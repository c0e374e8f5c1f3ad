#include "client/connection/backoff.h"

#include <gtest/gtest.h>

namespace megatrain::client {
namespace {

TEST(BackoffTest, GrowsToFiveSecondsAndBeginsAnew) {
  Backoff backoff(1);
  for (const double seconds : {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0}) {
    const double pause = absl::ToDoubleSeconds(backoff.Next());
    EXPECT_GE(pause, 0.8 * seconds);
    EXPECT_LE(pause, 1.2 * seconds);
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(120));
}

}  // namespace
}  // namespace megatrain::client

#include "engine/trace/transfer_rate.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1000);
constexpr int64_t kTotal = 2000000000;

TEST(TransferRateTest, TellsAboutOnceASecond) {
  TransferRate rate;
  EXPECT_EQ(rate.Pace(kBegin, 0, kTotal), "");
  EXPECT_EQ(rate.Pace(kBegin + absl::Milliseconds(900), 5000000, kTotal), std::nullopt);
  EXPECT_EQ(rate.Pace(kBegin + absl::Seconds(1), 10000000, kTotal), "");  // too soon to judge
  EXPECT_EQ(rate.Pace(kBegin + absl::Seconds(4), 40000000, kTotal), ": 10 MB/s, 4 minutes left");
  EXPECT_EQ(rate.Pace(kBegin + absl::Seconds(4), 41000000, kTotal), std::nullopt);
  EXPECT_EQ(rate.Pace(kBegin + absl::Seconds(4), kTotal, kTotal), ": 500 MB/s, 0 seconds left");
}

TEST(TransferRateTest, TheRateIsThatOfTheLastMinute) {
  TransferRate rate;
  int64_t done = 0;
  int second = 0;
  for (; second < 100; ++second) rate.Pace(kBegin + absl::Seconds(second), done += 1000, kTotal);
  std::optional<std::string> pace;
  for (; second < 200; ++second) {
    pace = rate.Pace(kBegin + absl::Seconds(second), done += 5000000, kTotal);
  }
  EXPECT_EQ(pace, ": 5 MB/s, 5 minutes left");
  EXPECT_EQ(rate.Pace(kBegin + absl::Seconds(200), done += 5000000, 100 * kTotal),
            ": 5 MB/s, 12 hours left");
}

TEST(TransferRateTest, NothingIsSaidWhereNothingMoves) {
  TransferRate rate;
  for (int second = 0; second < 10; ++second) {
    EXPECT_EQ(rate.Pace(kBegin + absl::Seconds(second), 0, kTotal), "");
  }
}

}  // namespace
}  // namespace megatrain

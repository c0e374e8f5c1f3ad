#include "engine/trace/transfer_rate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1000);
constexpr int64_t kTotal = 2000000000;

TEST(TransferRateTest, TellsAboutOnceASecond) {
  TransferRate rate;
  EXPECT_EQ(rate.TextIfDue(kBegin, 0, kTotal), "");
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Milliseconds(900), 5000000, kTotal), std::nullopt);
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(1), 10000000, kTotal), "");  // too soon to judge
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(4), 40000000, kTotal),
            ": 10 MB/s, 4 minutes left");
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(4), 41000000, kTotal), std::nullopt);
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(4), kTotal, kTotal),
            ": 500 MB/s, 0 seconds left");
}

TEST(TransferRateTest, TheRateIsThatOfTheLastMinute) {
  TransferRate rate;
  int64_t done = 0;
  int second = 0;
  for (; second < 100; ++second)
    rate.TextIfDue(kBegin + absl::Seconds(second), done += 1000, kTotal);
  std::optional<std::string> pace;
  for (; second < 200; ++second) {
    pace = rate.TextIfDue(kBegin + absl::Seconds(second), done += 5000000, kTotal);
  }
  EXPECT_EQ(pace, ": 5 MB/s, 5 minutes left");
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(200), done += 5000000, 100 * kTotal),
            ": 5 MB/s, 12 hours left");
}

// Whole units, rounded up: seconds below 100, minutes below 100, then hours.
TEST(TransferRateTest, TheTimeLeftIsRoundedUp) {
  struct Case {
    int64_t milliseconds;
    const char* left;
  };
  for (const Case& c :
       {Case{0, "0 seconds"}, Case{1, "1 second"}, Case{1000, "1 second"}, Case{1001, "2 seconds"},
        Case{99'000, "99 seconds"}, Case{99'001, "2 minutes"}, Case{120'000, "2 minutes"},
        Case{121'000, "3 minutes"}, Case{5'999'000, "100 minutes"}, Case{6'000'000, "2 hours"},
        Case{10'800'000, "3 hours"}, Case{10'801'000, "4 hours"}}) {
    TransferRate rate;
    constexpr int64_t kDone = 10'000'000;  // in ten seconds
    const int64_t total = kDone + 1000 * c.milliseconds;
    EXPECT_EQ(rate.TextIfDue(kBegin, 0, total), "");
    EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(10), kDone, total),
              std::string(": 1 MB/s, ") + c.left + " left");
  }
  // However slow it is.
  TransferRate slow;
  slow.TextIfDue(kBegin, 0, int64_t{1} << 60);
  EXPECT_EQ(slow.TextIfDue(kBegin + absl::Seconds(10), 1, int64_t{1} << 60),
            ": 1e-07 MB/s, 277778 hours left");
}

TEST(TransferRateTest, ARateIsToldAfterThreeSeconds) {
  TransferRate early, late;
  EXPECT_EQ(early.TextIfDue(kBegin, 0, kTotal), "");
  EXPECT_EQ(early.TextIfDue(kBegin + absl::Milliseconds(2999), 3'000'000, kTotal), "");
  EXPECT_EQ(late.TextIfDue(kBegin, 0, kTotal), "");
  EXPECT_EQ(late.TextIfDue(kBegin + absl::Seconds(3), 3'000'000, kTotal),
            ": 1 MB/s, 34 minutes left");
}

TEST(TransferRateTest, TheEndIsToldOnce) {
  TransferRate rate;
  EXPECT_EQ(rate.TextIfDue(kBegin, 0, kTotal), "");
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Milliseconds(100), kTotal, kTotal), "");
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Milliseconds(200), kTotal, kTotal), std::nullopt);
}

TEST(TransferRateTest, AfterAMinuteInWhichNothingMovedNothingIsSaid) {
  TransferRate rate;
  rate.TextIfDue(kBegin, 0, kTotal);
  for (int second = 10; second < 69; ++second) {
    const auto pace = rate.TextIfDue(kBegin + absl::Seconds(second), 10'000'000, kTotal);
    EXPECT_NE(pace.value_or(""), "") << second;
  }
  for (int second = 72; second < 100; ++second) {
    EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(second), 10'000'000, kTotal), "") << second;
  }
}

TEST(TransferRateTest, AClockThatGoesBackSilencesNothing) {
  TransferRate rate;
  for (int second = 0; second < 10; ++second) {
    rate.TextIfDue(kBegin + absl::Seconds(second), 10'000'000 * second, kTotal);
  }
  // To a time that was: the moments before it still count.
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Milliseconds(7500), 90'000'000, kTotal), std::nullopt);
  EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(8), 100'000'000, kTotal),
            ": 12.5 MB/s, 3 minutes left");
  // To a time before all: it begins anew.
  const absl::Time earlier = kBegin - absl::Hours(1);
  EXPECT_EQ(rate.TextIfDue(earlier, 100'000'000, kTotal), "");
  EXPECT_EQ(rate.TextIfDue(earlier + absl::Milliseconds(900), 110'000'000, kTotal), std::nullopt);
  EXPECT_EQ(rate.TextIfDue(earlier + absl::Seconds(4), 140'000'000, kTotal),
            ": 10 MB/s, 4 minutes left");
}

TEST(TransferRateTest, NothingIsSaidWhereNothingMoves) {
  TransferRate rate;
  for (int second = 0; second < 10; ++second) {
    EXPECT_EQ(rate.TextIfDue(kBegin + absl::Seconds(second), 0, kTotal), "");
  }
}

}  // namespace
}  // namespace megatrain

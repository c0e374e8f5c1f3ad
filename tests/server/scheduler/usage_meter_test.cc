#include "server/scheduler/usage_meter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megatrain {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1700000000);

TEST(UsageMeterTest, RecentSecondsCountInFull) {
  UsageMeter meter;
  EXPECT_TRUE(meter.Seconds(kStart).empty());
  meter.Add(1, 1, kStart, kStart + absl::Seconds(100));
  EXPECT_NEAR(meter.Seconds(kStart + absl::Seconds(100))[1], 100, 0.1);
}

TEST(UsageMeterTest, UseIsHalvedEachDay) {
  UsageMeter meter;
  meter.Add(1, 1, kStart, kStart + absl::Seconds(100));
  meter.Add(2, 5, kStart, kStart + absl::Seconds(2));
  const absl::Time end = kStart + absl::Seconds(100);
  EXPECT_NEAR(meter.Seconds(end + kUsageHalfLife)[1], 50, 0.1);
  EXPECT_NEAR(meter.Seconds(end + 2 * kUsageHalfLife)[1], 25, 0.1);
  EXPECT_NEAR(meter.Seconds(end + kUsageHalfLife)[2], 5, 0.1);
}

TEST(UsageMeterTest, PiecesInAnyOrderAddUp) {
  UsageMeter whole, pieces;
  whole.Add(1, 1, kStart, kStart + absl::Hours(30));
  pieces.Add(1, 1, kStart + absl::Hours(20), kStart + absl::Hours(30));
  pieces.Add(1, 1, kStart, kStart + absl::Hours(7));
  pieces.Add(1, 1, kStart + absl::Hours(7), kStart + absl::Hours(20));
  const absl::Time now = kStart + absl::Hours(50);
  EXPECT_NEAR(whole.Seconds(now)[1], pieces.Seconds(now)[1], 1e-6);
}

TEST(UsageMeterTest, YearsPass) {
  UsageMeter meter;
  for (int day = 0; day < 4000; ++day) {
    const absl::Time from = kStart + absl::Hours(24 * day);
    meter.Add(1, 1, from, from + absl::Hours(1));
  }
  // 3600 (1 + 1/2 + 1/4 + ...), as of the last day's end.
  const absl::Time now = kStart + absl::Hours(24 * 3999 + 1);
  EXPECT_NEAR(meter.Seconds(now)[1], 2 * 3600, 120);
}

TEST(UsageMeterTest, AClockSetBackCountsNothing) {
  UsageMeter meter;
  meter.Add(1, 1, kStart, kStart - absl::Hours(1));
  EXPECT_TRUE(meter.Seconds(kStart).empty());
}

TEST(UsageMeterTest, AClockThatWasWrongByDecadesLeavesNumbers) {
  UsageMeter meter;
  const absl::Time wrong = kStart + 30000 * kUsageHalfLife;
  meter.Add(1, 1, wrong, wrong + absl::Seconds(100));
  meter.Add(2, 1, kStart, kStart + absl::Seconds(100));
  for (const auto& [uid, seconds] : meter.Seconds(kStart + absl::Seconds(100))) {
    EXPECT_TRUE(std::isfinite(seconds)) << uid << ": " << seconds;
    EXPECT_GE(seconds, 0) << uid;
  }
}

TEST(UsageMeterTest, EventsTellWhenAJobHadTheDevice) {
  using S = JobState;
  std::vector<JobEvent> events;
  const auto at = [&events](int64_t seconds, S to) {
    JobEvent event;
    event.time = kStart + absl::Seconds(seconds);
    event.to = to;
    events.push_back(event);
  };
  at(0, S::kQueued);
  at(100, S::kPreparing);
  at(110, S::kRunning);
  at(150, S::kPausing);
  at(160, S::kPaused);  // 60
  at(900, S::kQueued);
  at(1000, S::kPreparing);
  at(1010, S::kRunning);
  at(1040, S::kSucceeded);  // 40
  UsageMeter meter;
  meter.AddEvents(1, 3, events, kStart + absl::Seconds(1040));
  EXPECT_NEAR(meter.Seconds(kStart + absl::Seconds(1040))[1], 300, 3);
}

TEST(UsageMeterTest, TimesOfEventsThatAreStillToComeAreNotUsed) {
  const absl::Time now = kStart + absl::Seconds(100);
  std::vector<JobEvent> events(4);
  events[0].to = events[2].to = JobState::kRunning;
  events[1].to = events[3].to = JobState::kPaused;
  events[0].time = kStart;
  events[1].time = now + absl::Hours(100);
  events[2].time = now + absl::Hours(200);
  events[3].time = now + absl::Hours(300);
  UsageMeter meter;
  meter.AddEvents(1, 1, events, now);
  EXPECT_NEAR(meter.Seconds(now)[1], 100, 1);
}

}  // namespace
}  // namespace megatrain

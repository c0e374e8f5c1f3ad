// Jobs side by side on several devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "server/scheduler/queue_policy.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;
const absl::Time kNow = absl::FromUnixSeconds(1700000000);

QueuedJob Queued(int64_t number, int devices = 1) {
  QueuedJob job;
  job.id = "j" + std::to_string(number);
  job.number = number;
  job.uid = number;
  job.devices = devices;
  return job;
}

ActiveJob Active(std::vector<int> devices, std::optional<double> seconds = std::nullopt) {
  ActiveJob job;
  job.uid = 99;
  job.devices = std::move(devices);
  job.seconds = seconds;
  return job;
}

QueueSnapshot Snapshot(int devices, std::vector<QueuedJob> queued,
                       std::vector<ActiveJob> active = {}) {
  QueueSnapshot snapshot;
  snapshot.now = kNow;
  snapshot.devices.count = devices;
  snapshot.queued = std::move(queued);
  snapshot.active = std::move(active);
  return snapshot;
}

TEST(QueueDevicesTest, EachJobGetsAsManyAsItAsksForAndNoneTwice) {
  const QueueDecision decision =
      DecideQueue(Snapshot(4, {Queued(1), Queued(2, 2), Queued(3)}, {Active({1})}));
  EXPECT_THAT(decision.start, ElementsAre(QueueStart{"j1", {0}}, QueueStart{"j2", {2, 3}}));
  EXPECT_EQ(decision.places.at("j3").waiting, WaitingReason::kDeviceBusy);
  EXPECT_EQ(decision.places.at("j3").text, "is next; waits for 1 of the 4 devices");
}

TEST(QueueDevicesTest, MoreThanThereAreMeansAll) {
  EXPECT_THAT(DecideQueue(Snapshot(2, {Queued(1, 64)})).start,
              ElementsAre(QueueStart{"j1", {0, 1}}));
}

TEST(QueueDevicesTest, WhoWaitsForMoreKeepsThoseThatAreFree) {
  const QueueDecision decision =
      DecideQueue(Snapshot(4, {Queued(1, 3), Queued(2), Queued(3)}, {Active({0, 2})}));
  EXPECT_THAT(decision.start, IsEmpty()) << "j1 has 1 and 3, and one more is to come";
  EXPECT_EQ(decision.places.at("j1").text, "is next; waits for 3 of the 4 devices");
  EXPECT_EQ(decision.places.at("j2").text, "1 job comes first");
}

// Small jobs come again and again, and each of them ends.
TEST(QueueDevicesTest, ALargeJobIsNotPassedForEver) {
  QueueSnapshot snapshot = Snapshot(4, {Queued(1, 4)}, {Active({0}), Active({1}), Active({2})});
  int64_t number = 1;
  for (int ends = 0; ends < 3; ++ends) {
    snapshot.queued.push_back(Queued(++number));
    const QueueDecision decision = DecideQueue(snapshot);
    EXPECT_THAT(decision.start, IsEmpty()) << ends;
    snapshot.active.pop_back();
  }
  EXPECT_THAT(DecideQueue(snapshot).start, ElementsAre(QueueStart{"j1", {0, 1, 2, 3}}));
}

TEST(QueueDevicesTest, AJobThatIsPausedInPlaceGoesOnOnItsOwn) {
  QueueSnapshot snapshot = Snapshot(3, {Queued(1), Queued(2)}, {Active({1})});
  snapshot.queued[0].own_devices = {1};
  snapshot.paused_devices = {0, 1};
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(decision.start, ElementsAre(QueueStart{"j2", {2}}))
      << "not device 0, on which another job is paused";
  EXPECT_EQ(decision.places.at("j1").text, "is next on cpu:1; another job is there");
  snapshot.active = {Active({2})};
  EXPECT_THAT(DecideQueue(snapshot).start,
              ElementsAre(QueueStart{"j1", {1}}, QueueStart{"j2", {0}}));
}

TEST(QueueDevicesTest, OfUnequalDevicesAJobGetsTheSmallestOnWhichItFits) {
  // Large, small, and two that differ by less than a tenth.
  QueueSnapshot snapshot = Snapshot(4, {Queued(1), Queued(2), Queued(3)});
  snapshot.devices = {"cuda:0", 4, {80 * kGiB, 24 * kGiB, 46 * kGiB, 45 * kGiB}};
  snapshot.queued[1].own_devices = {0, 2, 3};
  EXPECT_THAT(DecideQueue(snapshot).start,
              ElementsAre(QueueStart{"j1", {1}}, QueueStart{"j2", {2}}, QueueStart{"j3", {3}}));
  snapshot.queued[0].devices = 3;
  EXPECT_THAT(DecideQueue(snapshot).start,
              ElementsAre(QueueStart{"j1", {1, 2, 3}}, QueueStart{"j2", {0}}));
}

TEST(QueueDevicesTest, AJobThatFitsOnFewLeavesTheOthersToThoseBehindIt) {
  QueueSnapshot snapshot = Snapshot(3, {Queued(1), Queued(2)}, {Active({1}, 60), Active({2}, 30)});
  snapshot.queued[0].own_devices = {1, 2};
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(decision.start, ElementsAre(QueueStart{"j2", {0}}));
  EXPECT_EQ(decision.places.at("j1").text,
            "is next; waits for 1 of the 2 devices on which it fits (cpu:1, cpu:2)");
  EXPECT_EQ(decision.places.at("j1").predicted_start, kNow + absl::Seconds(30));
}

TEST(QueueDevicesTest, WhoWaitsForMemoryKeepsItsDeviceAndWhatIsFree) {
  QueueSnapshot snapshot = Snapshot(3, {Queued(1), Queued(2)}, {Active({0})});
  snapshot.pool_bytes = 10 * kGiB;
  snapshot.active[0].pool_bytes = 4 * kGiB;
  snapshot.queued[0].pool_bytes = 7 * kGiB;
  snapshot.queued[1].pool_bytes = 1 * kGiB;
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(decision.start, IsEmpty());
  EXPECT_EQ(decision.places.at("j1").text,
            "is next; needs 7.00 GiB of host memory, and 6.00 GiB are free");
  snapshot.queued[1].pool_bytes = 0;
  EXPECT_THAT(DecideQueue(snapshot).start, ElementsAre(QueueStart{"j2", {2}}));
}

TEST(QueueDevicesTest, StartsArePredictedFromTheDevicesThatAreFreeFirst) {
  QueueSnapshot snapshot = Snapshot(3, {Queued(1), Queued(2, 2), Queued(3)},
                                    {Active({0}, 100), Active({1}, 50), Active({2}, 10)});
  for (QueuedJob& job : snapshot.queued) job.seconds = 1000;
  QueueDecision decision = DecideQueue(snapshot);
  EXPECT_EQ(decision.places.at("j1").predicted_start, kNow + absl::Seconds(10));
  EXPECT_EQ(decision.places.at("j2").predicted_start, kNow + absl::Seconds(100));
  EXPECT_EQ(decision.places.at("j3").predicted_start, kNow + absl::Seconds(1010));
  snapshot.active[0].seconds.reset();
  decision = DecideQueue(snapshot);
  EXPECT_EQ(decision.places.at("j1").predicted_start, std::nullopt) << "device 0 may be the first";
}

TEST(QueueDevicesTest, AUserHasNoMoreThanTheLimit) {
  QueueSnapshot snapshot = Snapshot(4, {Queued(1, 2), Queued(2)}, {Active({0})});
  snapshot.queued[0].uid = 99;
  snapshot.limits.devices = 2;
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(decision.start, ElementsAre(QueueStart{"j2", {1}}));
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kUserLimit);
  EXPECT_EQ(decision.places.at("j1").text,
            "needs 2 devices; its user's other jobs have 1 of the 2 a user may have "
            "(limits.devices_per_user)");
  snapshot.queued[0].devices = 1;
  EXPECT_THAT(DecideQueue(snapshot).start,
              ElementsAre(QueueStart{"j2", {1}}, QueueStart{"j1", {2}}))
      << "exactly as many as it may";
}

TEST(QueueDevicesTest, UseCountsEveryDevice) {
  QueueSnapshot snapshot = Snapshot(4, {Queued(1), Queued(2)}, {Active({0, 1, 2}, 1000)});
  snapshot.queued[0].uid = 99;
  snapshot.use_seconds = {{2, 2000}};
  EXPECT_THAT(DecideQueue(snapshot).start, ElementsAre(QueueStart{"j2", {3}}));
  snapshot.use_seconds = {{2, 4000}};
  EXPECT_THAT(DecideQueue(snapshot).start, ElementsAre(QueueStart{"j1", {3}}));
}

}  // namespace
}  // namespace megatrain

// Jobs that wait for what their user, or a paused job, holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/scheduler/queue_policy.h"
#include "tests/server/scheduler/queue_snapshots.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(QueueLimitsTest, AUserWithAllThatMayRunLetsOthersPass) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1, 5), Queued(2, 1), Queued(3, 2), Queued(4, 2)});
  snapshot.devices.count = 3;
  snapshot.active = {Active(1)};
  snapshot.limits.running_jobs = 1;
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(Started(decision), ElementsAre("j3")) << "and one of the other's own";
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kUserLimit);
  EXPECT_EQ(decision.places.at("j1").text,
            "its user has 1 running of 1 (limits.running_jobs_per_user)");
  EXPECT_EQ(decision.places.at("j4").waiting, WaitingReason::kUserLimit);
  EXPECT_THAT(Order(decision), ElementsAre("j3", "j1", "j2", "j4"));
}

TEST(QueueLimitsTest, WithOneDeviceItIsTheDeviceThatIsWaitedFor) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 2)});
  snapshot.active = {Active(1, 60)};
  snapshot.limits.running_jobs = 1;
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_EQ(decision.places.at("j2").waiting, WaitingReason::kDeviceBusy);
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kBehindOthers);
}

TEST(QueueLimitsTest, MemoryThatAUsersJobsHoldIsThatUsersWait) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 2), Queued(3, 1)});
  snapshot.devices.count = 2;
  snapshot.pool_bytes = 100 * kGiB;
  snapshot.pool_paused_bytes = {{1, 6 * kGiB}, {3, 50 * kGiB}};
  snapshot.limits.host_bytes = 10 * kGiB;
  for (QueuedJob& job : snapshot.queued) job.pool_bytes = 5 * kGiB;
  snapshot.queued[2].pool_bytes = 0;  // paused in place before, and resumed
  QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(Started(decision), ElementsAre("j2", "j3"));
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kUserLimit);
  EXPECT_EQ(decision.places.at("j1").text,
            "needs 5.00 GiB of host memory; its user's paused jobs keep 6.00 GiB of the 10.00 GiB "
            "a user may have (limits.host_memory_per_user)");

  // Active jobs end: until then others go first, on whatever devices there are.
  snapshot.pool_paused_bytes = {};
  snapshot.devices.count = 3;
  snapshot.active = {Active(1)};
  snapshot.active[0].pool_bytes = 6 * kGiB;
  decision = DecideQueue(snapshot);
  EXPECT_THAT(Started(decision), ElementsAre("j2", "j3"));
  EXPECT_THAT(decision.places.at("j1").text, HasSubstr("other jobs hold 6.00 GiB"));
  snapshot.limits.host_bytes = 11 * kGiB;
  EXPECT_THAT(Started(DecideQueue(snapshot)), ElementsAre("j2", "j1"))
      << "exactly as much as it may";
}

TEST(QueueLimitsTest, JobsThatAreHeldDoNotUseUpTheirUsersTurn) {
  QueueSnapshot snapshot =
      Snapshot({Queued(1, 1), Queued(2, 1), Queued(3, 1), Queued(4, 1), Queued(5, 2)});
  snapshot.devices.count = 4;
  for (size_t i = 0; i < 3; ++i) {
    snapshot.queued[i].pool_bytes = 8 * kGiB;
    snapshot.queued[i].devices = 3;
  }
  const auto expect = [](const QueueSnapshot& held, WaitingReason reason) {
    const QueueDecision decision = DecideQueue(held);
    EXPECT_THAT(Order(decision), ElementsAre("j4", "j5", "j1", "j2", "j3"));
    EXPECT_EQ(decision.places.at("j1").waiting, reason);
  };
  QueueSnapshot by_devices = snapshot;
  by_devices.limits.devices = 2;
  expect(by_devices, WaitingReason::kUserLimit);
  QueueSnapshot by_own_memory = snapshot;
  by_own_memory.limits.host_bytes = 10 * kGiB;
  by_own_memory.pool_paused_bytes = {{1, 4 * kGiB}};
  expect(by_own_memory, WaitingReason::kUserLimit);
  QueueSnapshot by_memory = snapshot;
  by_memory.pool_bytes = 10 * kGiB;
  by_memory.pool_paused_bytes = {{3, 4 * kGiB}};
  expect(by_memory, WaitingReason::kHostMemory);
}

TEST(QueueLimitsTest, AJobThatIsLargerThanThePoolIsToldThat) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1)});
  snapshot.queued[0].pool_bytes = 5 * kGiB;
  snapshot.pool_bytes = 4 * kGiB;
  const QueuePlace place = DecideQueue(snapshot).places.at("j1");
  EXPECT_EQ(place.waiting, WaitingReason::kHostMemory);
  EXPECT_EQ(place.text, "needs 5.00 GiB of host memory, and the daemon's pool has 4.00 GiB");
}

}  // namespace
}  // namespace megatrain

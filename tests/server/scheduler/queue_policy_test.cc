#include "server/scheduler/queue_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "tests/server/scheduler/queue_snapshots.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(QueuePolicyTest, AnEmptyQueue) {
  const QueueDecision decision = DecideQueue(Snapshot({}));
  EXPECT_THAT(decision.start, IsEmpty());
  EXPECT_THAT(decision.places, IsEmpty());
}

TEST(QueuePolicyTest, TheOldestStartsOnAFreeDevice) {
  const QueueDecision decision = DecideQueue(Snapshot({Queued(2, 1), Queued(1, 1), Queued(3, 1)}));
  EXPECT_THAT(Started(decision), ElementsAre("j1"));
  EXPECT_THAT(Order(decision), ElementsAre("j1", "j2", "j3"));
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kNone);
  EXPECT_EQ(decision.places.at("j2").waiting, WaitingReason::kDeviceBusy);
  EXPECT_EQ(decision.places.at("j3").waiting, WaitingReason::kBehindOthers);
  EXPECT_EQ(decision.places.at("j3").text, "1 job comes first");
}

TEST(QueuePolicyTest, NothingStartsBesideARunningJob) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 1)});
  snapshot.active = {Active(1)};
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(decision.start, IsEmpty());
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kDeviceBusy);
  EXPECT_EQ(decision.places.at("j1").position, 1);
}

TEST(QueuePolicyTest, PriorityGoesBeforeFairness) {
  QueueSnapshot snapshot = Snapshot(
      {Queued(1, 1), Queued(2, 2, 5), Queued(3, 2, 5), Queued(4, 1, -1), Queued(5, 3, -1)});
  snapshot.use_seconds = {{2, 1e6}};
  EXPECT_THAT(Order(DecideQueue(snapshot)), ElementsAre("j2", "j3", "j1", "j5", "j4"))
      << "at -1 the user that has none before goes first";
}

TEST(QueuePolicyTest, UsersTakeTurns) {
  const QueueSnapshot snapshot =
      Snapshot({Queued(1, 1), Queued(2, 1), Queued(3, 1), Queued(4, 2), Queued(5, 2)});
  EXPECT_THAT(Order(DecideQueue(snapshot)), ElementsAre("j1", "j4", "j2", "j5", "j3"));
}

TEST(QueuePolicyTest, WhoHadLessGoesFirst) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 2)});
  snapshot.use_seconds = {{1, 20}, {2, 10}};
  EXPECT_THAT(Started(DecideQueue(snapshot)), ElementsAre("j2"));
  snapshot.use_seconds = {{1, 10}, {2, 20}};
  EXPECT_THAT(Started(DecideQueue(snapshot)), ElementsAre("j1"));
}

TEST(QueuePolicyTest, WhoRunsHasHadATurn) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 2)});
  snapshot.active = {Active(1)};
  EXPECT_THAT(Order(DecideQueue(snapshot)), ElementsAre("j2", "j1"));
}

TEST(QueuePolicyTest, ShortJobsCountLess) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 1), Queued(3, 1), Queued(4, 2)});
  for (QueuedJob& job : snapshot.queued) job.seconds = job.uid == 1 ? 100 : 1000;
  snapshot.use_seconds = {{2, 150}};
  EXPECT_THAT(Order(DecideQueue(snapshot)), ElementsAre("j1", "j2", "j4", "j3"));
}

TEST(QueuePolicyTest, PredictedStarts) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 1), Queued(3, 1), Queued(4, 1)});
  snapshot.active = {Active(1, 60)};
  snapshot.queued[0].seconds = 100;
  snapshot.queued[1].seconds = 200;
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_EQ(decision.places.at("j1").predicted_start, kNow + absl::Seconds(60));
  EXPECT_EQ(decision.places.at("j2").predicted_start, kNow + absl::Seconds(160));
  EXPECT_EQ(decision.places.at("j3").predicted_start, kNow + absl::Seconds(360));
  EXPECT_EQ(decision.places.at("j4").predicted_start, std::nullopt) << "j3's length is unknown";
  snapshot.active = {Active(1)};
  for (const auto& [id, place] : DecideQueue(snapshot).places) {
    EXPECT_EQ(place.predicted_start, std::nullopt) << id;
  }
  snapshot.active = {};
  EXPECT_EQ(DecideQueue(snapshot).places.at("j1").predicted_start, kNow);
}

TEST(QueuePolicyTest, AHeldJobLetsOthersPass) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1, 9), Queued(2, 1)});
  snapshot.queued[0].hold = WaitingReason::kDiskFull;
  snapshot.queued[0].hold_text = "no room";
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(Started(decision), ElementsAre("j2"));
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kDiskFull);
  EXPECT_EQ(decision.places.at("j1").text, "no room");
  EXPECT_EQ(decision.places.at("j1").position, 2);
  EXPECT_EQ(decision.places.at("j1").predicted_start, std::nullopt);
}

TEST(QueuePolicyTest, AHeldJobDoesNotUseUpItsUsersTurn) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 1), Queued(3, 2)});
  snapshot.queued[0].hold = WaitingReason::kDiskFull;
  snapshot.queued[0].hold_text = "its disk is full";
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(Started(decision), ElementsAre("j2")) << "neither user had a turn, and j2 was first";
  EXPECT_THAT(Order(decision), ElementsAre("j2", "j3", "j1"));
}

TEST(QueuePolicyTest, MemoryThatPausedJobsKeep) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 1)});
  snapshot.pool_bytes = 10 * kGiB;
  snapshot.pool_paused_bytes = {{1, 2 * kGiB}, {2, 4 * kGiB}};
  snapshot.queued[0].pool_bytes = 5 * kGiB;
  snapshot.queued[1].pool_bytes = 4 * kGiB;
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(Started(decision), ElementsAre("j2"));
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kHostMemory);
  EXPECT_THAT(decision.places.at("j1").text, HasSubstr("5.00 GiB"));
  EXPECT_THAT(decision.places.at("j1").text, HasSubstr("6.00 GiB"));
  EXPECT_THAT(decision.places.at("j1").text, HasSubstr("10.00 GiB"));
}

TEST(QueuePolicyTest, AJobThatKeepsItsMemoryNeedsNone) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1)});
  snapshot.pool_bytes = 10 * kGiB;
  snapshot.pool_paused_bytes = {{1, 10 * kGiB}};
  EXPECT_THAT(Started(DecideQueue(snapshot)), ElementsAre("j1"));
}

TEST(QueuePolicyTest, TurnsAreOpenToMoreThanOneJob) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 2), Queued(3, 3)});
  snapshot.devices.count = 3;
  snapshot.active = {Active(4)};
  snapshot.active[0].pool_bytes = 4 * kGiB;
  snapshot.pool_bytes = 10 * kGiB;
  for (QueuedJob& job : snapshot.queued) job.pool_bytes = 3 * kGiB;
  EXPECT_THAT(Started(DecideQueue(snapshot)), ElementsAre("j1", "j2"));
  // What waits for active jobs to end is not passed by smaller ones.
  snapshot.queued[0].pool_bytes = 7 * kGiB;
  EXPECT_THAT(DecideQueue(snapshot).start, IsEmpty());
}

TEST(QueuePolicyTest, AStoppingDaemonStartsNothing) {
  QueueSnapshot snapshot = Snapshot({Queued(1, 1), Queued(2, 1)});
  snapshot.accepts = false;
  const QueueDecision decision = DecideQueue(snapshot);
  EXPECT_THAT(decision.start, IsEmpty());
  EXPECT_THAT(Order(decision), ElementsAre("j1", "j2"));
  EXPECT_EQ(decision.places.at("j1").waiting, WaitingReason::kShuttingDown);
}

// Equal jobs of up to three users in every arrangement of six: as long as two users both have jobs
// left, none has had two turns more than the other.
TEST(QueuePolicyTest, EveryArrangementOfSixJobsIsFair) {
  for (int arrangement = 0; arrangement < 729; ++arrangement) {
    QueueSnapshot snapshot = Snapshot({});
    std::map<int64_t, int> left;
    for (int i = 0, rest = arrangement; i < 6; ++i, rest /= 3) {
      snapshot.queued.push_back(Queued(i + 1, rest % 3));
      ++left[rest % 3];
    }
    std::map<int64_t, int> had;
    for (const std::string& id : Order(DecideQueue(snapshot))) {
      const int64_t uid = snapshot.queued[static_cast<size_t>(std::stoi(id.substr(1)) - 1)].uid;
      ++had[uid];
      --left[uid];
      for (const auto& [other, count] : left) {
        if (count > 0) {
          ASSERT_LE(had[uid], had[other] + 1) << arrangement;
        }
      }
    }
  }
}

// Returns a snapshot of up to four devices, four running and eleven queued jobs of four users.
QueueSnapshot RandomSnapshot(std::mt19937& random) {
  const auto below = [&random](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  QueueSnapshot snapshot = Snapshot({});
  snapshot.devices.count = 1 + below(4);
  snapshot.pool_bytes = below(2) * 10 * kGiB;
  const int64_t paused_bytes = snapshot.pool_bytes > 0 ? below(8) * kGiB : 0;
  snapshot.pool_paused_bytes = {{below(4), paused_bytes}};
  snapshot.limits.running_jobs = below(3);
  snapshot.limits.devices = below(4);
  snapshot.limits.host_bytes = below(2) * 8 * kGiB;
  std::vector<int> devices(static_cast<size_t>(snapshot.devices.count));
  std::iota(devices.begin(), devices.end(), 0);
  std::shuffle(devices.begin(), devices.end(), random);
  while (!devices.empty() && below(3) > 0) {
    ActiveJob job = Active(below(4), std::nullopt, {});
    for (int i = below(2); i >= 0 && !devices.empty(); --i) {
      job.devices.push_back(devices.back());
      devices.pop_back();
    }
    if (below(2)) job.seconds = below(1000);
    job.pool_bytes = below(2) * kGiB;
    snapshot.active.push_back(job);
  }
  for (int i = below(12); i > 0; --i) {
    QueuedJob job = Queued(i, below(4), below(3) - 1);
    job.pool_bytes = below(11) * kGiB;
    if (below(5) == 0) job.hold = WaitingReason::kDiskFull;
    job.devices = 1 + below(5);
    if (below(5) == 0) job.own_devices = {below(snapshot.devices.count)};
    if (below(5) == 0) {
      job.own_devices.resize(static_cast<size_t>(1 + below(snapshot.devices.count)));
      std::iota(job.own_devices.begin(), job.own_devices.end(), 0);
    }
    for (const int device : job.own_devices) snapshot.paused_devices.insert(device);
    if (below(2)) job.seconds = below(1000);
    snapshot.queued.push_back(job);
  }
  for (int64_t uid = 0; uid < 4; ++uid) snapshot.use_seconds[uid] = below(5000);
  return snapshot;
}

int64_t PausedBytes(const QueueSnapshot& snapshot) {
  return snapshot.pool_paused_bytes.begin()->second;
}

void ExpectPlaces(const QueueSnapshot& snapshot, const QueueDecision& decision) {
  // Every job has a place, the places are 1 to n.
  ASSERT_EQ(decision.places.size(), snapshot.queued.size());
  std::set<int> positions;
  for (const auto& [id, place] : decision.places) positions.insert(place.position);
  ASSERT_EQ(positions.size(), snapshot.queued.size());
  if (!positions.empty()) {
    ASSERT_EQ(*positions.begin(), 1);
    ASSERT_EQ(*positions.rbegin(), static_cast<int>(positions.size()));
  }
}

void ExpectLimits(const QueueSnapshot& snapshot, const QueueDecision& decision) {
  // Nobody gets more, or other, than there is.
  std::map<std::string, const QueuedJob*> jobs;
  for (const QueuedJob& job : snapshot.queued) jobs[job.id] = &job;
  std::set<int> busy;
  int64_t held = PausedBytes(snapshot);
  std::map<int64_t, int64_t> user_held = snapshot.pool_paused_bytes;
  std::map<int64_t, int64_t> user_running, user_devices;
  for (const ActiveJob& job : snapshot.active) {
    held += job.pool_bytes;
    user_held[job.uid] += job.pool_bytes;
    ++user_running[job.uid];
    user_devices[job.uid] += static_cast<int64_t>(job.devices.size());
    busy.insert(job.devices.begin(), job.devices.end());
  }
  for (const auto& [id, devices] : decision.start) {
    const QueuedJob& job = *jobs.at(id);
    ASSERT_TRUE(std::is_sorted(devices.begin(), devices.end()));
    for (const int device : devices) {
      ASSERT_TRUE(busy.insert(device).second);
      ASSERT_LT(device, snapshot.devices.count);
    }
    const std::vector<int>& own = job.own_devices;
    const int most = own.empty() ? snapshot.devices.count : static_cast<int>(own.size());
    ASSERT_EQ(devices.size(), static_cast<size_t>(std::min(job.devices, most)));
    for (const int device : devices) {
      ASSERT_TRUE(own.empty() || std::find(own.begin(), own.end(), device) != own.end());
    }
    user_devices[job.uid] += static_cast<int64_t>(devices.size());
    if (snapshot.limits.devices > 0) {
      ASSERT_LE(user_devices[job.uid], snapshot.limits.devices);
    }
    held += job.pool_bytes;
    user_held[job.uid] += job.pool_bytes;
    ++user_running[job.uid];
    if (snapshot.limits.running_jobs > 0) {
      ASSERT_LE(user_running[job.uid], snapshot.limits.running_jobs);
    }
    if (snapshot.limits.host_bytes > 0 && job.pool_bytes > 0) {
      ASSERT_LE(user_held[job.uid], snapshot.limits.host_bytes);
    }
  }
  if (snapshot.pool_bytes > 0 && !decision.start.empty()) {
    ASSERT_LE(held, snapshot.pool_bytes);
  }
}

void ExpectOrder(const QueueSnapshot& snapshot, const QueueDecision& decision) {
  const auto can_start = [&](const QueuedJob& job) {
    return job.hold == WaitingReason::kNone &&
           (snapshot.pool_bytes == 0 ||
            job.pool_bytes <= snapshot.pool_bytes - PausedBytes(snapshot)) &&
           decision.places.at(job.id).waiting != WaitingReason::kUserLimit;
  };
  for (const QueuedJob& a : snapshot.queued) {
    const QueuePlace& place = decision.places.at(a.id);
    const std::vector<std::string> ids = Started(decision);
    const bool started = std::count(ids.begin(), ids.end(), a.id) == 1;
    ASSERT_EQ(place.waiting == WaitingReason::kNone, started);
    ASSERT_FALSE(place.text.empty() && can_start(a));
    for (const QueuedJob& b : snapshot.queued) {
      const bool before = place.position < decision.places.at(b.id).position;
      if (can_start(a) != can_start(b)) {
        ASSERT_EQ(before, can_start(a)) << "who can start goes before who cannot";
      } else if (a.priority != b.priority) {
        ASSERT_EQ(before, a.priority > b.priority);
      } else if (a.uid == b.uid && a.id != b.id) {
        ASSERT_EQ(before, a.number < b.number) << "first in, first out";
      }
    }
  }

  // An idle device is given away if there is any job for it.
  if (snapshot.active.empty() &&
      std::any_of(snapshot.queued.begin(), snapshot.queued.end(), can_start)) {
    ASSERT_FALSE(decision.start.empty());
  }
}

// The properties that must hold of any snapshot.
TEST(QueuePolicyTest, PropertiesOfRandomSnapshots) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    QueueSnapshot snapshot = RandomSnapshot(random);
    const QueueDecision decision = DecideQueue(snapshot);
    ExpectPlaces(snapshot, decision);
    ExpectLimits(snapshot, decision);
    ExpectOrder(snapshot, decision);
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;

    // The order in which the snapshot lists the jobs does not matter.
    std::shuffle(snapshot.queued.begin(), snapshot.queued.end(), random);
    const QueueDecision again = DecideQueue(snapshot);
    ASSERT_EQ(again.start, decision.start);
    ASSERT_EQ(again.places, decision.places);
  }
}

}  // namespace
}  // namespace megatrain

#include "server/transport/turn_scheduler.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

using Clock = TurnScheduler::Clock;

class TestStream : public TurnScheduler::Stream {
 public:
  TestStream(TurnScheduler* scheduler, std::function<Clock::time_point(bool stopping)> turn)
      : Stream(scheduler), turn_(std::move(turn)) {}
  Clock::time_point Turn(Clock::time_point, bool stopping) override { return turn_(stopping); }

 private:
  const std::function<Clock::time_point(bool)> turn_;
};

void WaitUntil(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (!condition() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(condition());
}

TEST(TurnSchedulerTest, TurnsComeWhenAddedWhenWokenAndWhenDue) {
  TurnScheduler scheduler(10);
  std::atomic<int> turns{0};
  std::atomic<bool> again{false};
  const auto stream = std::make_shared<TestStream>(&scheduler, [&](bool) {
    ++turns;
    return again.exchange(false) ? Clock::now() + std::chrono::milliseconds(5)
                                 : TurnScheduler::kNever;
  });
  ASSERT_TRUE(scheduler.Add(stream).ok());
  WaitUntil([&] { return turns == 1; });
  again = true;
  scheduler.Wake(stream.get());
  WaitUntil([&] { return turns == 3; });
  scheduler.Remove(stream.get());
  scheduler.Wake(stream.get());
  EXPECT_EQ(scheduler.streams(), 0u);
  EXPECT_EQ(stream.use_count(), 1);
}

TEST(TurnSchedulerTest, AWakeDuringATurnIsNotLost) {
  TurnScheduler scheduler(10);
  std::atomic<int> turns{0};
  std::promise<void> entered, leave;
  const auto stream = std::make_shared<TestStream>(&scheduler, [&](bool) {
    if (++turns == 1) {
      entered.set_value();
      leave.get_future().wait();
    }
    return TurnScheduler::kNever;
  });
  ASSERT_TRUE(scheduler.Add(stream).ok());
  entered.get_future().wait();
  scheduler.Wake(stream.get());
  leave.set_value();
  WaitUntil([&] { return turns == 2; });
  scheduler.Remove(stream.get());
}

TEST(TurnSchedulerTest, AStreamMayBeRemovedInItsOwnTurn) {
  TurnScheduler scheduler(10);
  std::atomic<bool> removed{false};
  TestStream* self = nullptr;
  auto stream = std::make_shared<TestStream>(&scheduler, [&](bool) {
    scheduler.Remove(self);
    removed = true;
    return Clock::now();
  });
  self = stream.get();
  ASSERT_TRUE(scheduler.Add(std::move(stream)).ok());
  WaitUntil([&] { return removed && scheduler.streams() == 0; });
}

TEST(TurnSchedulerTest, AStreamThatIsDueLaterHoldsUpNobody) {
  TurnScheduler scheduler(10);
  std::atomic<int> late{0}, soon{0};
  const auto patient = std::make_shared<TestStream>(&scheduler, [&](bool) {
    ++late;
    return Clock::now() + std::chrono::hours(1);
  });
  const auto other = std::make_shared<TestStream>(&scheduler, [&](bool) {
    ++soon;
    return TurnScheduler::kNever;
  });
  ASSERT_TRUE(scheduler.Add(patient).ok());
  WaitUntil([&] { return late == 1; });
  ASSERT_TRUE(scheduler.Add(other).ok());
  for (int turns = 1; turns <= 3; ++turns) {
    WaitUntil([&] { return soon == turns; });
    scheduler.Wake(other.get());
  }
  WaitUntil([&] { return soon == 4; });
  EXPECT_EQ(late, 1);
  scheduler.Remove(patient.get());
  scheduler.Remove(other.get());
}

TEST(TurnSchedulerTest, ManyStreamsWokenByManyThreads) {
  constexpr int kStreams = 200, kThreads = 4, kWakes = 500;
  TurnScheduler scheduler(kStreams);
  std::vector<std::atomic<int>> seen(kStreams);
  std::vector<std::atomic<int>> news(kStreams);
  std::vector<std::shared_ptr<TestStream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_shared<TestStream>(&scheduler, [&seen, &news, i](bool) {
      seen[i] = news[i].load();
      return TurnScheduler::kNever;
    }));
    ASSERT_TRUE(scheduler.Add(streams.back()).ok());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int wake = 0; wake < kWakes; ++wake) {
        for (int i = 0; i < kStreams; ++i) {
          ++news[i];
          scheduler.Wake(streams[i].get());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kStreams; ++i) {
    WaitUntil([&] { return seen[i] == kThreads * kWakes; });
    scheduler.Remove(streams[i].get());
  }
}

TEST(TurnSchedulerTest, OverTheLimitStreamsAreRefused) {
  TurnScheduler scheduler(1);
  std::atomic<int> turns{0};
  const auto turn = [&](bool) {
    ++turns;
    return TurnScheduler::kNever;
  };
  const auto first = std::make_shared<TestStream>(&scheduler, turn);
  const auto second = std::make_shared<TestStream>(&scheduler, turn);
  ASSERT_TRUE(scheduler.Add(first).ok());
  const absl::Status refused = scheduler.Add(second);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused)->reason, "LIMIT_REACHED");
  WaitUntil([&] { return turns == 1; });
  scheduler.Remove(second.get());  // without effect
  EXPECT_EQ(scheduler.streams(), 1u);
  scheduler.Remove(first.get());
  EXPECT_TRUE(scheduler.Add(second).ok());
  WaitUntil([&] { return turns == 2; });
  scheduler.Remove(second.get());
}

TEST(TurnSchedulerTest, StopReachesStreamsThatAreThereAndThoseThatCome) {
  TurnScheduler scheduler(10);
  std::atomic<int> stopped{0};
  const auto turn = [&](bool stopping) {
    stopped += stopping;
    return TurnScheduler::kNever;
  };
  const auto first = std::make_shared<TestStream>(&scheduler, turn);
  const auto second = std::make_shared<TestStream>(&scheduler, turn);
  ASSERT_TRUE(scheduler.Add(first).ok());
  scheduler.Stop(std::chrono::milliseconds(0));
  WaitUntil([&] { return stopped == 1; });
  ASSERT_TRUE(scheduler.Add(second).ok());
  WaitUntil([&] { return stopped == 2; });
  scheduler.Remove(first.get());
  scheduler.Remove(second.get());
}

// A connection that is closed before a stream's status is on its way may cost the reader the
// status.
TEST(TurnSchedulerTest, StopWaitsForStreamsButNotForLong) {
  TurnScheduler scheduler(10);
  const auto stream =
      std::make_shared<TestStream>(&scheduler, [](bool) { return TurnScheduler::kNever; });
  ASSERT_TRUE(scheduler.Add(stream).ok());
  const Clock::time_point start = Clock::now();
  scheduler.Stop(std::chrono::milliseconds(50));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_EQ(scheduler.streams(), 1u);
  std::thread remover([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    scheduler.Remove(stream.get());
  });
  scheduler.Stop(std::chrono::hours(1));
  EXPECT_EQ(scheduler.streams(), 0u);
  remover.join();
}

}  // namespace
}  // namespace megatrain

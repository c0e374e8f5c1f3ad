#include "server/transport/stream_pump.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/jobs/error_reason.h"

namespace megatrain {
namespace {

using Clock = StreamPump::Clock;

class TestStream : public StreamPump::Stream {
 public:
  explicit TestStream(std::function<Clock::time_point(bool stopping)> turn)
      : turn_(std::move(turn)) {}
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

TEST(StreamPumpTest, TurnsComeWhenAddedWhenWokenAndWhenDue) {
  StreamPump pump(10);
  std::atomic<int> turns{0};
  std::atomic<bool> again{false};
  const auto stream = std::make_shared<TestStream>([&](bool) {
    ++turns;
    return again.exchange(false) ? Clock::now() + std::chrono::milliseconds(5) : StreamPump::kNever;
  });
  ASSERT_TRUE(pump.Add(stream).ok());
  WaitUntil([&] { return turns == 1; });
  again = true;
  pump.Wake(stream.get());
  WaitUntil([&] { return turns == 3; });
  pump.Remove(stream.get());
  pump.Wake(stream.get());
  EXPECT_EQ(pump.streams(), 0u);
  EXPECT_EQ(stream.use_count(), 1);
}

TEST(StreamPumpTest, AWakeDuringATurnIsNotLost) {
  StreamPump pump(10);
  std::atomic<int> turns{0};
  std::promise<void> entered, leave;
  const auto stream = std::make_shared<TestStream>([&](bool) {
    if (++turns == 1) {
      entered.set_value();
      leave.get_future().wait();
    }
    return StreamPump::kNever;
  });
  ASSERT_TRUE(pump.Add(stream).ok());
  entered.get_future().wait();
  pump.Wake(stream.get());
  leave.set_value();
  WaitUntil([&] { return turns == 2; });
  pump.Remove(stream.get());
}

TEST(StreamPumpTest, AStreamMayBeRemovedInItsOwnTurn) {
  StreamPump pump(10);
  std::atomic<bool> removed{false};
  TestStream* self = nullptr;
  auto stream = std::make_shared<TestStream>([&](bool) {
    pump.Remove(self);
    removed = true;
    return Clock::now();
  });
  self = stream.get();
  ASSERT_TRUE(pump.Add(std::move(stream)).ok());
  WaitUntil([&] { return removed && pump.streams() == 0; });
}

TEST(StreamPumpTest, ManyStreamsWokenByManyThreads) {
  constexpr int kStreams = 200, kThreads = 4, kWakes = 500;
  StreamPump pump(kStreams);
  std::vector<std::atomic<int>> seen(kStreams);
  std::vector<std::atomic<int>> news(kStreams);
  std::vector<std::shared_ptr<TestStream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_shared<TestStream>([&seen, &news, i](bool) {
      seen[i] = news[i].load();
      return StreamPump::kNever;
    }));
    ASSERT_TRUE(pump.Add(streams.back()).ok());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int wake = 0; wake < kWakes; ++wake) {
        for (int i = 0; i < kStreams; ++i) {
          ++news[i];
          pump.Wake(streams[i].get());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kStreams; ++i) {
    WaitUntil([&] { return seen[i] == kThreads * kWakes; });
    pump.Remove(streams[i].get());
  }
}

TEST(StreamPumpTest, OverTheLimitStreamsAreRefused) {
  StreamPump pump(1);
  std::atomic<int> turns{0};
  const auto turn = [&](bool) {
    ++turns;
    return StreamPump::kNever;
  };
  const auto first = std::make_shared<TestStream>(turn);
  const auto second = std::make_shared<TestStream>(turn);
  ASSERT_TRUE(pump.Add(first).ok());
  const absl::Status refused = pump.Add(second);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused)->reason, "LIMIT_REACHED");
  WaitUntil([&] { return turns == 1; });
  pump.Remove(second.get());  // without effect
  EXPECT_EQ(pump.streams(), 1u);
  pump.Remove(first.get());
  EXPECT_TRUE(pump.Add(second).ok());
  WaitUntil([&] { return turns == 2; });
  pump.Remove(second.get());
}

TEST(StreamPumpTest, StopReachesStreamsThatAreThereAndThoseThatCome) {
  StreamPump pump(10);
  std::atomic<int> stopped{0};
  const auto turn = [&](bool stopping) {
    stopped += stopping;
    return StreamPump::kNever;
  };
  const auto first = std::make_shared<TestStream>(turn);
  const auto second = std::make_shared<TestStream>(turn);
  ASSERT_TRUE(pump.Add(first).ok());
  pump.Stop();
  WaitUntil([&] { return stopped == 1; });
  ASSERT_TRUE(pump.Add(second).ok());
  WaitUntil([&] { return stopped == 2; });
  pump.Remove(first.get());
  pump.Remove(second.get());
}

}  // namespace
}  // namespace megatrain

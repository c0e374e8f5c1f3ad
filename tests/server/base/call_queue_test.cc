#include "server/base/call_queue.h"

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

TEST(CallQueueTest, RunsWhatIsAdded) {
  std::promise<absl::Status> ran;
  CallQueue queue("test", 2, 10, 1000);
  ASSERT_TRUE(queue.Add(1, [&ran](const absl::Status& status) { ran.set_value(status); }).ok());
  EXPECT_TRUE(ran.get_future().get().ok());
}

TEST(CallQueueTest, RefusesMoreThanItMayHoldAndEndsWhatWaits) {
  std::promise<void> entered, leave;
  CallQueue queue("test", 1, 2, 1000);  // ends before what its calls use
  ASSERT_TRUE(queue
                  .Add(1,
                       [&](const absl::Status&) {
                         entered.set_value();
                         leave.get_future().wait();
                       })
                  .ok());
  entered.get_future().wait();
  std::atomic<int> stopped{0};
  const auto count = [&stopped](const absl::Status& status) {
    stopped += ReasonOf(status).has_value() && ReasonOf(status)->reason == "STOPPING";
  };
  EXPECT_TRUE(queue.Add(1, count).ok());
  EXPECT_TRUE(queue.Add(1, count).ok());
  const absl::Status refused = queue.Add(1, count);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused)->reason, "OVERLOADED");

  std::thread stopper([&queue] { queue.Stop(); });
  // Refused as stopping, no longer as overloaded, once Stop has begun.
  while (ReasonOf(queue.Add(1, count))->reason != "STOPPING") std::this_thread::yield();
  leave.set_value();
  stopper.join();
  EXPECT_EQ(stopped, 2);
}

TEST(CallQueueTest, CallsBeginInTheOrderOfTheirComing) {
  std::promise<void> entered, leave, done;
  std::string order;  // written by the queue's one thread
  CallQueue queue("test", 1, 10, 1000);
  ASSERT_TRUE(queue
                  .Add(1,
                       [&](const absl::Status&) {
                         entered.set_value();
                         leave.get_future().wait();
                       })
                  .ok());
  entered.get_future().wait();
  for (const char name : {'a', 'b', 'c', 'd'}) {
    ASSERT_TRUE(queue.Add(1, [&order, name](const absl::Status&) { order += name; }).ok());
  }
  ASSERT_TRUE(queue.Add(1, [&done](const absl::Status&) { done.set_value(); }).ok());
  leave.set_value();
  done.get_future().wait();
  queue.Stop();
  EXPECT_EQ(order, "abcd");
}

TEST(CallQueueTest, RefusesMoreBytesThanItMayHold) {
  std::promise<void> entered, leave;
  CallQueue queue("test", 1, 10, 1000);
  const auto ignore = [](const absl::Status&) {};
  const auto block = [&](const absl::Status&) {
    entered.set_value();
    leave.get_future().wait();
  };
  // What runs does not wait any more, and one call alone may be of any size.
  ASSERT_TRUE(queue.Add(5000, block).ok());
  entered.get_future().wait();
  EXPECT_TRUE(queue.Add(900, ignore).ok());
  EXPECT_EQ(ReasonOf(queue.Add(101, ignore))->reason, "OVERLOADED");
  EXPECT_TRUE(queue.Add(100, ignore).ok());
  leave.set_value();
}

}  // namespace
}  // namespace megatrain

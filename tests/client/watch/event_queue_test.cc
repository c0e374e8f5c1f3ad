#include "client/watch/event_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <string>
#include <thread>
#include <variant>

#include "absl/time/time.h"
#include "client/watch/watch_event.h"

namespace megatrain::client {
namespace {

WatchEvent Event(size_t number) {
  return StreamLost{WatchStream::kJob, std::to_string(number), absl::UnixEpoch()};
}

bool IsReadable(const EventQueue& queue) {
  pollfd ready = {queue.fd(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

TEST(EventQueueTest, GivesEventsInTheirOrderAndSaysThatTheyAreThere) {
  EventQueue queue;
  EXPECT_FALSE(IsReadable(queue));
  EXPECT_TRUE(queue.TakeAll().empty());
  for (size_t i = 0; i < 3; ++i) queue.Push(Event(i));
  EXPECT_TRUE(IsReadable(queue));
  const std::deque<WatchEvent> taken = queue.TakeAll();
  ASSERT_EQ(taken.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::get<StreamLost>(taken[i]).why, std::to_string(i));
  }
  EXPECT_FALSE(IsReadable(queue));
  EXPECT_TRUE(queue.TakeAll().empty());
}

TEST(EventQueueTest, AFullOneIsWaitedForUntilItsEventsAreTaken) {
  EventQueue queue;
  std::thread reader([&queue] {
    for (size_t i = 0; i < 3 * EventQueue::kEventsMax; ++i) queue.Push(Event(i));
  });
  size_t taken = 0;
  while (taken < 3 * EventQueue::kEventsMax) {
    const std::deque<WatchEvent> events = queue.TakeAll();
    EXPECT_LE(events.size(), EventQueue::kEventsMax);
    taken += events.size();
    std::this_thread::yield();
  }
  reader.join();
}

TEST(EventQueueTest, AClosedOneLetsWhoeverWaitsGoAndTakesNothingMore) {
  EventQueue queue;
  for (size_t i = 0; i < EventQueue::kEventsMax; ++i) queue.Push(Event(i));
  std::thread waiting([&queue] { queue.Push(Event(EventQueue::kEventsMax)); });
  queue.Close();
  waiting.join();
  EXPECT_EQ(queue.TakeAll().size(), EventQueue::kEventsMax);
  queue.Push(Event(0));
  EXPECT_TRUE(queue.TakeAll().empty());
}

}  // namespace
}  // namespace megatrain::client

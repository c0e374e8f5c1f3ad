#include "server/daemon/background_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "engine/base/processors.h"

namespace megatrain {
namespace {

struct Scheduling {
  int policy = -1;
  int processors = 0;
};

Scheduling OwnScheduling() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return {sched_getscheduler(0), CPU_COUNT(&set)};
}

TEST(BackgroundThreadsTest, OnlyWhatIsStartedThereIsInTheBackground) {
  const Scheduling before = OwnScheduling();
  Scheduling grandchild;
  StartInBackground([&] {
    std::thread([&] { std::thread([&] { grandchild = OwnScheduling(); }).join(); }).join();
  });
  EXPECT_EQ(grandchild.policy, SCHED_BATCH);
  EXPECT_EQ(grandchild.processors, 1);
  const Scheduling after = OwnScheduling();
  EXPECT_EQ(after.policy, before.policy);
  EXPECT_EQ(after.processors, before.processors);
}

// A plan that a caller asks for counts the threads that training will have.
TEST(BackgroundThreadsTest, TheProcessorsOfTheProcessAreCountedThereToo) {
  const int before = AvailableProcessors();
  int inside = 0;
  StartInBackground([&] { inside = AvailableProcessors(); });
  EXPECT_EQ(inside, before);
}

}  // namespace
}  // namespace megatrain

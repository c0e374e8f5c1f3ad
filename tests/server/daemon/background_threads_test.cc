#include "server/daemon/background_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace megatrain {
namespace {

TEST(BackgroundThreadsTest, OnlyWhatIsStartedThereIsInTheBackground) {
  const int own = sched_getscheduler(0);
  int grandchild = -1;
  StartInBackground([&] {
    std::thread([&] { std::thread([&] { grandchild = sched_getscheduler(0); }).join(); }).join();
  });
  EXPECT_EQ(grandchild, SCHED_BATCH);
  EXPECT_EQ(sched_getscheduler(0), own);
}

}  // namespace
}  // namespace megatrain

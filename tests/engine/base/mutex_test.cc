#include "engine/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace megatrain {
namespace {

TEST(MutexTest, AWaitThatNobodyEndsTellsThatItsTimeHasPassed) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(&mutex);
  EXPECT_FALSE(changed.WaitFor(&mutex, 0));
}

TEST(MutexTest, AWaitGivesTheMutexAwayAndTellsThatItWasEnded) {
  Mutex mutex;
  CondVar changed;
  bool told = false, in_time = true;
  std::thread teller;
  {
    MutexLock lock(&mutex);
    teller = std::thread([&] {
      MutexLock lock(&mutex);
      told = true;
      changed.NotifyOne();
    });
    while (!told && in_time) in_time = changed.WaitFor(&mutex, 1e6);
    EXPECT_TRUE(in_time);
  }
  teller.join();
}

}  // namespace
}  // namespace megatrain

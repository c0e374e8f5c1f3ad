#include "client/connection/signal_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

namespace megatrain::client {
namespace {

bool IsBlocked(int signal) {
  sigset_t set;
  pthread_sigmask(SIG_BLOCK, nullptr, &set);
  return sigismember(&set, signal) == 1;
}

TEST(SignalWatchTest, DeliversSignalsInPlaceOfTheirHandlers) {
  {
    SignalWatch watch({SIGUSR1});
    EXPECT_GE(watch.fd(), 0);
    EXPECT_EQ(watch.Take(), std::nullopt);
    raise(SIGUSR1);
    EXPECT_EQ(watch.Take(), SIGUSR1);
    raise(SIGUSR1);  // it would end the test if the watch left it
  }
  EXPECT_FALSE(IsBlocked(SIGUSR1));
}

TEST(SignalWatchTest, WithoutADescriptorSignalsAreNotSwallowed) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  SignalWatch watch({SIGUSR1});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(watch.fd(), -1);
  EXPECT_FALSE(IsBlocked(SIGUSR1));
  EXPECT_EQ(watch.Take(), std::nullopt);
}

}  // namespace
}  // namespace megatrain::client

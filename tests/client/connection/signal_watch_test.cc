#include "client/connection/signal_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "client/connection/detachable.h"

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

TEST(SignalWatchTest, SignalsThatAreIgnoredStaySo) {
  // As nohup has it.
  const auto before = ::signal(SIGUSR2, SIG_IGN);
  {
    SignalWatch watch({SIGUSR2, SIGUSR1});
    EXPECT_FALSE(IsBlocked(SIGUSR2));
    raise(SIGUSR2);
    EXPECT_EQ(watch.Take(), std::nullopt);
    raise(SIGUSR1);
    EXPECT_EQ(watch.Take(), SIGUSR1);
  }
  ::signal(SIGUSR2, before);
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

// Ctrl-C ends the view, whatever comes of that, and another one changes nothing.
TEST(DetachableTest, ASignalStopsTheViewOnce) {
  SignalWatch watch({SIGINT, SIGTERM});
  kill(getpid(), SIGINT);
  kill(getpid(), SIGTERM);
  const auto both_are_taken = [] {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, SIGINT) == 0 && sigismember(&set, SIGTERM) == 0;
  };
  std::atomic<int> stops{0};
  const absl::Status status = RunDetachable(
      &watch,
      [&] {
        while (stops == 0 || !both_are_taken()) std::this_thread::yield();
        return absl::OkStatus();
      },
      [&] { ++stops; });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(stops, 1);
}

TEST(DetachableTest, ASignalThatDoesNotLeaveStopsNothing) {
  SignalWatch watch({SIGINT, SIGWINCH});
  kill(getpid(), SIGWINCH);
  const auto is_taken = [] {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, SIGWINCH) == 0;
  };
  int stops = 0;
  const absl::Status status = RunDetachable(
      &watch,
      [&] {
        while (!is_taken()) std::this_thread::yield();
        return absl::OkStatus();
      },
      [&] { ++stops; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stops, 0);
}

}  // namespace
}  // namespace megatrain::client

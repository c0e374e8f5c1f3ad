#include "engine/checkpoint/disk/concurrent_for.h"

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"

namespace megatrain {
namespace {

TEST(ConcurrentForTest, CallsForEveryIndexOnceAndAsksOnTheCallersThread) {
  for (const int threads : {1, 3, 8}) {
    for (const int count : {0, 1, 2, 50}) {
      Mutex mutex;
      std::multiset<int> calls;
      int questions = 0;
      const auto caller = std::this_thread::get_id();
      const absl::Status status = ConcurrentFor(
          count, threads,
          [&](int done) {
            EXPECT_EQ(std::this_thread::get_id(), caller);
            EXPECT_LE(done, count);
            ++questions;
            return absl::OkStatus();
          },
          [&](int index) {
            MutexLock lock(&mutex);
            calls.insert(index);
            return absl::OkStatus();
          });
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(static_cast<int>(calls.size()), count);
      EXPECT_EQ(static_cast<int>(std::set<int>(calls.begin(), calls.end()).size()), count);
      EXPECT_GE(questions, 1);
    }
  }
}

TEST(ConcurrentForTest, TheErrorOfTheLowestIndexIsReturnedAndNoMoreCallsAreMade) {
  Mutex mutex;
  int calls = 0;
  const absl::Status status = ConcurrentFor(
      1000, 4, [](int) { return absl::OkStatus(); },
      [&](int index) {
        MutexLock lock(&mutex);
        ++calls;
        return index >= 10 ? absl::InternalError(absl::StrCat("index ", index)) : absl::OkStatus();
      });
  EXPECT_EQ(status, absl::InternalError("index 10"));
  EXPECT_LT(calls, 20);
}

// Two calls fail, on threads that are not the caller's. A thread ends after its call's error was
// taken, and only then does the other call return.
TEST(ConcurrentForTest, TheErrorOfTheLowestIndexIsReturnedWhicheverComesFirst) {
  for (const bool lowest_first : {true, false}) {
    const auto caller = std::this_thread::get_id();
    Mutex mutex;
    CondVar all_begun;
    int begun = 0;
    std::set<int> failing;
    std::promise<void> first;
    const std::future<void> first_has_ended = first.get_future();
    const absl::Status status = ConcurrentFor(
        3, 3, [](int) { return absl::OkStatus(); },
        [&](int index) -> absl::Status {
          const bool callers = std::this_thread::get_id() == caller;
          {
            MutexLock lock(&mutex);
            if (!callers) failing.insert(index);
            if (++begun == 3) all_begun.NotifyAll();
            while (begun < 3) all_begun.Wait(&mutex);
          }
          if (callers) return absl::OkStatus();
          if ((index == *failing.begin()) == lowest_first) {
            first.set_value_at_thread_exit();
          } else {
            first_has_ended.wait();
          }
          return absl::InternalError(absl::StrCat("index ", index));
        });
    ASSERT_EQ(failing.size(), 2u);
    EXPECT_EQ(status, absl::InternalError(absl::StrCat("index ", *failing.begin())))
        << lowest_first;
  }
}

TEST(ConcurrentForTest, EndsWhenTheCallerSaysSo) {
  int calls = 0;
  const absl::Status status = ConcurrentFor(
      10, 1,
      [](int done) { return done < 3 ? absl::OkStatus() : absl::CancelledError("abandoned"); },
      [&](int) {
        ++calls;
        return absl::OkStatus();
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace megatrain

// Waiting for what another thread or process does.
#ifndef MEGATRAIN_TESTS_SUPPORT_WAIT_UNTIL_H_
#define MEGATRAIN_TESTS_SUPPORT_WAIT_UNTIL_H_

#include <chrono>
#include <functional>
#include <thread>

namespace megatrain {

// Calls `condition` until it is true, or `hopeless` is (the other process has ended, say), or two
// minutes are over, which a busy machine may need. Returns whether the condition was met.
inline bool WaitUntil(
    const std::function<bool()>& condition,
    const std::function<bool()>& hopeless = [] { return false; }) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (hopeless() || std::chrono::steady_clock::now() >= deadline) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_WAIT_UNTIL_H_

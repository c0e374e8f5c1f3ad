// An event of the emulated CUDA. Waits are for the recording that was the last one when they were
// queued.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_EVENT_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_EVENT_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

namespace megatrain {

class EmulatedEvent {
 public:
  // Returns the number of a new recording, which a stream is to pass.
  int64_t Record() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ++recorded_;
  }
  void Pass(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    passed_ = number;
    time_ = std::chrono::steady_clock::now();
    passed_changed_.notify_all();
  }
  // Returns the number of the last recording, 0 if there is none.
  int64_t recorded() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return recorded_;
  }
  void WaitFor(int64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    passed_changed_.wait(lock, [&] { return passed_ >= number; });
  }
  bool passed() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return passed_ == recorded_;
  }
  // Returns the time from `start` to `end`, nullopt if one was not passed.
  static std::optional<float> Milliseconds(const EmulatedEvent& start, const EmulatedEvent& end) {
    if (!start.passed() || !end.passed()) return std::nullopt;
    std::scoped_lock lock(start.mutex_, end.mutex_);
    return std::chrono::duration<float, std::milli>(end.time_ - start.time_).count();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable passed_changed_;
  int64_t recorded_ = 0, passed_ = 0;
  std::chrono::steady_clock::time_point time_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_EVENT_H_

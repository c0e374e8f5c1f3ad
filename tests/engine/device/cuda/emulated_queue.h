// A stream of the emulated CUDA.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_QUEUE_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_QUEUE_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/engine/device/cuda/emulation.h"

namespace megatrain {

// Work in order, on a thread of its own and some time after it was queued.
class QueueStream : public cuda::EmulatedStream {
 public:
  explicit QueueStream(std::function<int()> launch_error)
      : launch_error_(std::move(launch_error)), thread_([this] { Run(); }) {}
  ~QueueStream() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Enqueue(std::function<void()> work) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

  int LaunchError() override { return launch_error_(); }

 private:
  void Run() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return !work_.empty() || stopping_; });
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  const std::function<int()> launch_error_;
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_QUEUE_H_

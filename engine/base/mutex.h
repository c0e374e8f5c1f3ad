// A mutex and a condition variable over the standard library's, annotated so that Clang's
// -Wthread-safety checks their users. absl::Mutex is not used because the system's Abseil is not
// instrumented, so TSan would report races that do not exist.
#ifndef MEGATRAIN_ENGINE_BASE_MUTEX_H_
#define MEGATRAIN_ENGINE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace megatrain {

// An exclusive lock. It is not recursive.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds `mutex` from its construction to its destruction.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  // Releases `mutex`, waits for a notification and takes `mutex` again. It may return without a
  // notification: call it in a loop over the condition. REQUIRES: the caller holds `mutex`.
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Does as Wait, but for at most `seconds`. Returns false if that time has passed. REQUIRES:
  // seconds < 1e9; an infinite wait is Wait.
  bool WaitFor(Mutex* mutex, double seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool notified = condition_.wait_for(lock, std::chrono::duration<double>(seconds)) ==
                          std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_MUTEX_H_

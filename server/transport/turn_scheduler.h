// The one thread on which all server streams take their turns, however many there are.
//
// A stream takes a turn when it is woken or its time has come: it looks for what is new and starts
// at most one write, which is all that is buffered for its reader. While that write is under way
// the stream takes no turn, so a slow reader costs nothing and holds up nobody.
//
// Thread safety: all methods may be called from any thread; turns are taken on the scheduler's
// thread. Invariants: a stream's turns never overlap; a Wake during a turn is followed by another
// turn.
#ifndef MEGATRAIN_SERVER_TRANSPORT_TURN_SCHEDULER_H_
#define MEGATRAIN_SERVER_TRANSPORT_TURN_SCHEDULER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace megatrain {

class TurnScheduler {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kNever = Clock::time_point::max();

  class Stream : public std::enable_shared_from_this<Stream> {
   public:
    explicit Stream(TurnScheduler* scheduler);  // which must outlive it
    virtual ~Stream();

    // Must not block. Returns when the next turn is due if nobody wakes the stream before.
    // `stopping`: the daemon stops; the stream is to be ended.
    virtual Clock::time_point Turn(Clock::time_point now, bool stopping) = 0;

   private:
    friend class TurnScheduler;
    TurnScheduler* const scheduler_;
    // Guarded by the scheduler's mutex.
    bool added_ = false;
    bool turning_ = false;
    bool woken_ = false;  // during the turn
    Clock::time_point due_ = kNever;
  };

  explicit TurnScheduler(size_t streams_max);
  // Waits until the last stream is gone: one that has been removed may still be held by what was
  // about to wake it. REQUIRES: all have been removed.
  ~TurnScheduler();
  TurnScheduler(const TurnScheduler&) = delete;
  TurnScheduler& operator=(const TurnScheduler&) = delete;

  // The stream takes its first turn soon and is kept alive until it is removed. LIMIT_REACHED, and
  // nothing else happens, if there are too many.
  absl::Status Add(std::shared_ptr<Stream> stream);
  // Without effect on a stream that is not there.
  void Wake(Stream* stream);
  void Remove(Stream* stream);

  // Gives every stream, also those added later, a turn with `stopping`.
  void Stop();

  size_t streams() const;

 private:
  void Run();
  void SetDue(Stream* stream, Clock::time_point due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t streams_max_;
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar gone_;
  size_t alive_ ABSL_GUARDED_BY(mutex_) = 0;  // stream objects, added or not
  std::set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  // Those with a due time, the earliest first.
  std::set<std::pair<Clock::time_point, Stream*>> due_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_TURN_SCHEDULER_H_

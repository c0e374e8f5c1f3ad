// TurnScheduler gives all server streams their turns on one thread, however many there are.
//
// A stream takes a turn when it is woken or when the time that it named has come. In a turn it
// looks for news and starts at most one write, which is all that is buffered for its reader. While
// that write is under way its turns do nothing, so that a slow reader costs little and delays
// nobody.
//
// Thread safety: all methods may be called from any thread. Turns are taken on the scheduler's
// thread, with no lock of the scheduler held.
// Invariants: a stream's turns never overlap. A Wake during a turn is followed by another turn,
// unless the stream is removed.
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
    explicit Stream(TurnScheduler* scheduler);  // `scheduler` must outlive the stream
    virtual ~Stream();

    // Takes a turn, and must not block. Called on the scheduler's thread. Returns the time at which
    // the next turn is due if nobody wakes the stream before, or kNever if it is due only when the
    // stream is woken. If `stopping` is true, the daemon stops, and the stream must end.
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

  // At most `streams_max` streams are added at a time.
  explicit TurnScheduler(size_t streams_max);
  // Waits until the last Stream object is destroyed, since a thread that was about to wake one may
  // still hold it. REQUIRES: all streams have been removed.
  ~TurnScheduler();
  TurnScheduler(const TurnScheduler&) = delete;
  TurnScheduler& operator=(const TurnScheduler&) = delete;

  // Keeps the stream alive until it is removed, and gives it its first turn soon. Returns
  // ResourceExhausted (LIMIT_REACHED), and does not keep it, if `streams_max` streams are there.
  // REQUIRES: the stream was made for this scheduler, and is not added.
  absl::Status Add(std::shared_ptr<Stream> stream);
  // Gives the stream a turn soon. Does nothing if it was not added or is removed. REQUIRES, as
  // Remove does: the stream is alive.
  void Wake(Stream* stream);
  // Gives the stream no more turns; one may be under way. Does nothing if the stream was not added
  // or is removed. The stream may be destroyed by this call.
  void Remove(Stream* stream);

  // Gives every stream, also those added later, a turn with `stopping`. Waits until all that are
  // there have been removed, but no longer than `wait`. May be called again.
  void Stop(std::chrono::milliseconds wait);

  // Returns the number of streams that are added and not removed.
  size_t streams() const;

 private:
  void Run();
  void WakeLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetDue(Stream* stream, Clock::time_point due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t streams_max_;
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar gone_;
  CondVar removed_;
  size_t alive_ ABSL_GUARDED_BY(mutex_) = 0;  // stream objects, added or not
  std::set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  // Streams with a due time, the earliest first.
  std::set<std::pair<Clock::time_point, Stream*>> due_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_TURN_SCHEDULER_H_

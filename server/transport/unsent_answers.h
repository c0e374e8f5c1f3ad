// UnsentAnswers bounds the memory of answers that their callers do not read.
//
// gRPC keeps an answer until HTTP/2's flow control has let it out, and then reports that. A client
// that gives no window keeps every answer in the daemon's memory, a MiB each if it asks for job
// files. UnsentAnswers therefore counts the bytes of each answer, by connection and by caller,
// until gRPC reports that the answer went out or that its call ended. Before the answer is made,
// kAnswerBytesExpected are counted for it.
//
// A caller with too many unsent bytes is not answered until some have gone. A call then waits
// before it is acted on, and a stream before its next message. Waiting calls are bounded in number
// and bytes, and calls beyond the bounds are refused. A client that reads answers as they come is
// refused only if more of its calls wait than the bounds allow, however slow its line. A client
// that reads nothing until one of its calls is answered may wait for that until the call's
// deadline, because calls that were sent later may be taken first and use up the room.
//
// Thread safety: all methods may be called from any thread, an AnswerShare's by one at a time.
// Invariants: unsent bytes exceed a bound by no more than the bytes by which answers are longer
// than kAnswerBytesExpected, or by one answer that a caller without unsent bytes is given. A call
// waits only while its caller has unsent answers.
#ifndef MEGATRAIN_SERVER_TRANSPORT_UNSENT_ANSWERS_H_
#define MEGATRAIN_SERVER_TRANSPORT_UNSENT_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace megatrain {

class UnsentAnswers {
 public:
  struct Options {
    // Unsent bytes of a caller on one connection: enough to fill a line of 100 ms and 640 Mbit/s.
    size_t connection_bytes_max = size_t{8} << 20;
    // Unsent bytes of a caller on all connections.
    size_t caller_bytes_max = size_t{32} << 20;
    // A caller's waiting calls, and the bytes of their requests.
    size_t waiting_max = 1024;
    size_t waiting_bytes_max = size_t{32} << 20;
  };
  // The bytes that are counted for an answer until it is made: those of a job with its file.
  static constexpr size_t kAnswerBytesExpected = size_t{1} << 20;

  explicit UnsentAnswers(const Options& options) : options_(options) {}
  UnsentAnswers(const UnsentAnswers&) = delete;
  UnsentAnswers& operator=(const UnsentAnswers&) = delete;

  // Returns the bytes that are counted now, of all callers.
  size_t bytes() const;

 private:
  friend class AnswerShare;

  struct Waiting {
    const void* connection = nullptr;
    size_t request_bytes = 0;
    std::function<void()> go_on;
  };
  struct Account {
    size_t bytes = 0;
    std::map<const void*, size_t> connections;  // those with bytes
    std::list<Waiting> waiting;                 // in the order of their coming
    size_t waiting_bytes = 0;
    bool resuming = false;  // a thread lets them go on
  };

  bool HasRoom(const Account& account, const void* connection) const;
  void Add(Account* account, const void* connection, size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> Take(int64_t uid, const void* connection, size_t request_bytes,
                            std::function<void()> go_on);
  void Change(int64_t uid, const void* connection, size_t from, size_t to);

  const Options options_;
  mutable Mutex mutex_;
  std::map<int64_t, Account> accounts_ ABSL_GUARDED_BY(mutex_);  // by uid; those that are not empty
};

// AnswerShare counts the unsent bytes of one call, and gives them back when it is destroyed.
class AnswerShare {
 public:
  // `answers` must outlive this.
  explicit AnswerShare(UnsentAnswers* answers) : answers_(answers) {}
  ~AnswerShare() { SetBytes(0); }
  AnswerShare(const AnswerShare&) = delete;
  AnswerShare& operator=(const AnswerShare&) = delete;

  // Sets the caller. To be called once, before the other methods. `connection` identifies the
  // connection, and must do so as long as the share lives.
  void SetCaller(int64_t uid, const void* connection) {
    uid_ = uid;
    connection_ = connection;
  }

  // Counts kAnswerBytesExpected and returns true if the call may be answered now. Returns false if
  // it must wait. Then `go_on` is called once, on any thread and with no lock held, when these
  // bytes are counted and the call may be answered. That may be before Take returns.
  // `request_bytes` is what the call holds while it waits. Returns ResourceExhausted
  // (ANSWERS_UNREAD) if too many calls or bytes wait; `go_on` is then not called. REQUIRES: nothing
  // is counted. After false, the share must live, and SetBytes must not be called, until `go_on` is
  // called.
  absl::StatusOr<bool> Take(size_t request_bytes, std::function<void()> go_on);

  // Counts `bytes` in place of those counted before. If `bytes` is less, the `go_on` of other calls
  // may be called on this thread.
  void SetBytes(size_t bytes);

 private:
  friend class UnsentAnswers;

  UnsentAnswers* const answers_;
  int64_t uid_ = -1;
  const void* connection_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_UNSENT_ANSWERS_H_

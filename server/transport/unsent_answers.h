// Bounds what answers that their callers do not read hold of memory.
//
// gRPC keeps an answer until HTTP/2's flow control has let it out, and tells of it then: a client
// that gives no window keeps every answer in the daemon's memory, a MiB each if it asks for job
// files. So each answer is counted from when it is made until gRPC says that it went out or that
// its call ended, by connection and by caller. A caller who has too much unsent is not answered
// until some of it has gone: the call waits before it is acted on, a stream before its next
// message. Nothing is refused to a client that reads answers as they come, however slow its line,
// however many calls it sends ahead. Only those that wait are bounded in number and bytes, beyond
// that they are refused. A client that leaves answers unread until another call of the same
// connection is answered may wait for that to its deadline: calls are taken by several threads, and
// later ones may have used up the room.
//
// Thread safety: all methods may be called from any thread, an AnswerShare's by one at a time.
// Invariants: unsent bytes exceed a bound by no more than what answers are longer than
// kAnswerBytesExpected; a call waits only while its caller has unsent answers.
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
    // Of a caller on one connection. A line of 100 ms and 640 Mbit/s is filled.
    size_t connection_bytes_max = size_t{8} << 20;
    // Of a caller on all connections.
    size_t caller_bytes_max = size_t{32} << 20;
    // Of a caller's calls that wait, and of their requests.
    size_t waiting_max = 1024;
    size_t waiting_bytes_max = size_t{32} << 20;
  };
  // Counted for an answer until it has been made: a job with its file.
  static constexpr size_t kAnswerBytesExpected = size_t{1} << 20;

  explicit UnsentAnswers(const Options& options) : options_(options) {}
  UnsentAnswers(const UnsentAnswers&) = delete;
  UnsentAnswers& operator=(const UnsentAnswers&) = delete;

  // Of all callers: expected ones and those that wait to be sent.
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

// What one call has unsent. Gives it back when it is destroyed.
class AnswerShare {
 public:
  // `answers` must outlive this.
  explicit AnswerShare(UnsentAnswers* answers) : answers_(answers) {}
  ~AnswerShare() { Set(0); }
  AnswerShare(const AnswerShare&) = delete;
  AnswerShare& operator=(const AnswerShare&) = delete;

  // Once, before the others. `connection` stands for it as long as this lives.
  void SetCaller(int64_t uid, const void* connection) {
    uid_ = uid;
    connection_ = connection;
  }

  // Whether the call may be answered now; then kAnswerBytesExpected are counted for it. False:
  // `go_on` is called once, on any thread, when it may be, with the bytes counted.
  // `request_bytes` is what it holds while it waits. RESOURCE_EXHAUSTED, ANSWERS_UNREAD: too many
  // wait. REQUIRES: nothing is counted.
  absl::StatusOr<bool> Take(size_t request_bytes, std::function<void()> go_on);

  // That many bytes are unsent now. Fewer than before may let other calls go on, on this thread.
  void Set(size_t bytes);

 private:
  friend class UnsentAnswers;

  UnsentAnswers* const answers_;
  int64_t uid_ = -1;
  const void* connection_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_UNSENT_ANSWERS_H_

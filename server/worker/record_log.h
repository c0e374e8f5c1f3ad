// Numbered lines on disk, bounded: a job's step metrics, a job's log. Appended to by the engine's
// thread, read from any sequence number by any number of readers, also by another process later.
//
// On disk: a directory of segments, each named by its first sequence number, 20 digits + ".log".
// A segment is lines of
//   XXH3-64 of what follows, 16 hex digits | ' ' | kind | ' ' | sequence | ' ' | step | ' ' | text
// so that a line torn by a killed process or a full disk is known for what it is: the last segment
// is cut back to its last whole line when the log is opened. When a segment is full a new one is
// begun, and the oldest is removed if there are more than `segments_max`.
//
// A job that falls back to a checkpoint repeats steps. FallBack appends a marker, which has a
// sequence number of its own so that a live reader sees it in its place; whoever reads the earlier
// records of later steps from then on finds them marked superseded.
//
// Thread safety: all methods of RecordLog from any thread; a Reader from one at a time.
// Invariants: sequence numbers are consecutive from 1; a record is visible to readers when its line
// is whole in the file, never before.
#ifndef MEGATRAIN_SERVER_WORKER_RECORD_LOG_H_
#define MEGATRAIN_SERVER_WORKER_RECORD_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace megatrain {

struct LogRecord {
  enum class Kind {
    kText,
    kFellBack,  // records before this one of steps after `step` are superseded; no text
  };
  Kind kind = Kind::kText;
  int64_t sequence = 0;     // from 1
  int64_t step = 0;         // 0: before the first step
  bool superseded = false;  // as far as was known when it was read
  std::string text;         // one line
};

struct RecordLogOptions {
  int64_t segment_bytes = int64_t{4} << 20;
  int segments_max = 16;
};

class RecordLog {
 public:
  // A longer text is refused: 1 MiB.
  static constexpr int64_t kTextBytesMax = int64_t{1} << 20;

  // Makes the directory if it is missing. Lines for the log about what was found torn or damaged
  // go to *notes. One RecordLog at a time may append to a directory.
  static absl::StatusOr<std::unique_ptr<RecordLog>> Open(const std::string& directory,
                                                         const RecordLogOptions& options,
                                                         std::vector<std::string>* notes);
  // REQUIRES: no reader is left.
  ~RecordLog();
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  // The record's sequence number. `text` holds no '\n'. After an error (disk full: see IsDiskFull)
  // the log is as before and may be appended to again; the record is lost.
  absl::StatusOr<int64_t> Append(int64_t step, std::string_view text);
  // The job goes on after `step`: records of later steps are superseded. Nothing is appended if
  // there are none.
  absl::Status FallBack(int64_t step);
  // Everything appended is on stable storage when this returns.
  absl::Status Sync();
  // No more will be appended: waiting readers return.
  void Close();

  int64_t first_sequence() const;  // of the oldest record that is kept; next_sequence() if none
  int64_t next_sequence() const;   // of the record to come
  bool closed() const;

  // Blocks until there is a record `sequence`, the log is closed, or `seconds` have passed. Returns
  // whether there is one.
  bool WaitFor(int64_t sequence, double seconds) const;

  // `changed` is called, on the appending thread and without a lock held, after every append and
  // Close, until the subscription is destroyed; it must not block, nor destroy the subscription.
  class Subscription;
  std::unique_ptr<Subscription> Subscribe(std::function<void()> changed) const;

  class Reader;
  // Begins at `sequence`; what is not there yet is found by reading again later. REQUIRES:
  // sequence >= 1; the log outlives the reader.
  std::unique_ptr<Reader> Read(int64_t sequence) const;

 private:
  struct Segment {
    std::string path;
    int64_t bytes = 0;  // of whole lines
  };
  struct Listener;

  RecordLog(std::string directory, const RecordLogOptions& options, int lock_fd)
      : directory_(std::move(directory)), options_(options), lock_fd_(lock_fd) {}
  absl::Status Load(std::vector<std::string>* notes);
  absl::Status LoadSegment(int64_t first, const std::string& path, bool last,
                           std::vector<std::string>* notes);
  absl::StatusOr<int64_t> AppendLine(LogRecord::Kind kind, int64_t step, std::string_view text)
      ABSL_LOCKS_EXCLUDED(append_mutex_, mutex_);
  absl::Status PrepareSegment(int64_t line_bytes, int64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  absl::Status WriteLine(std::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  void AddMarker(int64_t sequence, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Superseded(int64_t sequence, int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string directory_;
  const RecordLogOptions options_;
  const int lock_fd_;

  // Held over a write, so that readers never wait for the disk. Taken before mutex_.
  Mutex append_mutex_;
  int fd_ ABSL_GUARDED_BY(append_mutex_) = -1;        // of the last segment
  bool torn_ ABSL_GUARDED_BY(append_mutex_) = false;  // what a failed write left is still there

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::map<int64_t, Segment> segments_ ABSL_GUARDED_BY(mutex_);  // by first sequence
  int64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t step_max_ ABSL_GUARDED_BY(mutex_) = 0;  // of records that are not superseded
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // (sequence of the marker, step), both growing: an earlier marker of the same or a later step
  // says nothing that the later one does not say.
  std::vector<std::pair<int64_t, int64_t>> markers_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<std::shared_ptr<Listener>> listeners_ ABSL_GUARDED_BY(mutex_);
};

class RecordLog::Reader {
 public:
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Appends to *records what follows, `records_max` of them at most; nothing if there is nothing
  // yet. `*missed` grows by the records that were rotated away or damaged before they were read.
  absl::Status Next(int64_t records_max, std::vector<LogRecord>* records, int64_t* missed);
  // Of the record that Next will give first.
  int64_t next_sequence() const { return next_; }

 private:
  friend class RecordLog;
  Reader(const RecordLog* log, int64_t sequence) : log_(log), next_(sequence) {}
  // The bytes of the open segment that may be read; opens the one that holds next_ if none is.
  // 0 when there is nothing to read.
  absl::StatusOr<int64_t> Available(int64_t* missed);
  void CloseSegment();

  const RecordLog* const log_;
  int64_t next_;
  int fd_ = -1;
  int64_t segment_ = 0;  // its first sequence
  int64_t offset_ = 0;   // of the first byte that is not in buffer_
  std::string buffer_;   // an unfinished line's beginning, between calls
};

class RecordLog::Subscription {
 public:
  // Waits for a call that is under way.
  ~Subscription();
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  friend class RecordLog;
  Subscription(const RecordLog* log, std::shared_ptr<Listener> listener)
      : log_(log), listener_(std::move(listener)) {}
  const RecordLog* const log_;
  const std::shared_ptr<Listener> listener_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_RECORD_LOG_H_

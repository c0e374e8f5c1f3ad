// RecordLog keeps numbered records on disk, in a bounded number of bytes: a job's step metrics, or
// its log lines. Records are appended one at a time. Any number of readers read from any sequence
// number, also in a later process. The format on disk stands above LogRecord.
//
// The records are in plain files, because reading them takes less than half the CPU time that
// SQLite would. A hash in each record shows whether the record is damaged.
//
// A log is a series of files, its segments. A log whose last segment is full begins a new segment,
// and removes the oldest if there are more than `segments_max`. Opening a log cuts its last segment
// back to the last whole record.
//
// A job that falls back to a checkpoint repeats steps. FallBack appends a marker with a sequence
// number of its own, so that a reader that follows the log meets the marker in its place. Readers
// that come later find the records of the repeated steps marked superseded.
//
// Thread safety: all methods of RecordLog may be called from any thread, and those of a Reader from
// one at a time.
// Invariants: sequence numbers are consecutive from 1, except where records were damaged on disk.
// The oldest may be removed. Readers see a record once its line is whole in the file, never before.
#ifndef MEGATRAIN_SERVER_WORKER_RECORD_LOG_H_
#define MEGATRAIN_SERVER_WORKER_RECORD_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"

namespace megatrain {

// ---- The format on disk ----
//
// Logs of every version are read, so the format may be extended but not changed.
//
// A log is a directory of segments. A segment is a file named by the sequence number of its first
// record, in 20 digits, and ".log". It consists of lines, one for each record:
//
//   HASH ' ' KIND ' ' SEQUENCE ' ' STEP ' ' TEXT '\n'
//
//   HASH      XXH3-64 of everything after it up to the '\n', 16 lower-case hexadecimal digits
//   KIND      one character: LogRecord::Kind
//   SEQUENCE  decimal, 1 or more, greater than that of the line before
//   STEP      decimal, 0 or more
//   TEXT      any bytes but '\n'
//
// The hash tells a whole line from one that a killed process, a power cut or a full disk has torn.

struct LogRecord {
  enum class Kind : char {
    kText = 't',
    kFellBack = 'f',  // a marker: earlier records of steps after `step` are superseded; no text
  };
  Kind kind = Kind::kText;
  int64_t sequence = 0;
  int64_t step = 0;  // 0: before the first step
  std::string text;
  bool superseded = false;  // set by RecordLog::Reader; not in the file
};

// Returns the name of the segment whose first record is `sequence`, without its directory.
std::string SegmentName(int64_t sequence);
// Returns the sequence number of a segment's name, or nullopt for a name that SegmentName does not
// make of a number of 1 or more.
std::optional<int64_t> ParseSegmentName(const std::string& name);

// Returns the line of a record, with its '\n'. REQUIRES: `text` holds no '\n'; sequence >= 1; step
// >= 0.
std::string EncodeRecord(LogRecord::Kind kind, int64_t sequence, int64_t step,
                         std::string_view text);
// Reads the record of a line without its '\n'. Returns nullopt if its hash or its form is wrong.
std::optional<LogRecord> DecodeRecord(std::string_view line);

// ---- The log ----

// A log holds at most segment_bytes * segments_max bytes, unless a record is longer than a segment
// or an old segment cannot be removed.
struct RecordLogOptions {
  int64_t segment_bytes = int64_t{4} << 20;
  int segments_max = 16;  // less than 1 counts as 1
};

class RecordLog {
 public:
  // The most bytes of a record's text.
  static constexpr int64_t kTextBytesMax = int64_t{1} << 20;

  // Opens the log in `directory`, which is made if it is missing. Appends to *notes, which must not
  // be null, lines that tell people of torn and damaged records. Returns FailedPrecondition if
  // another RecordLog, also of another process, is open on the directory and the file system has
  // locks, and otherwise FileError's codes.
  static absl::StatusOr<std::unique_ptr<RecordLog>> Open(const std::string& directory,
                                                         const RecordLogOptions& options,
                                                         std::vector<std::string>* notes);
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  // Appends a record and returns its sequence number. Returns InvalidArgument if `text` holds a
  // '\n' or is longer than kTextBytesMax, FailedPrecondition after Close, and FileError's codes
  // (IsDiskFull for a full disk). After an error the record is lost, and the log may be appended to
  // again. REQUIRES: step >= 0.
  absl::StatusOr<int64_t> Append(int64_t step, std::string_view text);
  // Appends a marker that records of steps after `step` are superseded, because the job goes on
  // after `step`. Appends nothing, and returns OK, if there are none. Otherwise returns
  // FailedPrecondition after Close, and FileError's codes. REQUIRES: step >= 0.
  absl::Status FallBack(int64_t step);
  // Returns when everything appended is on stable storage. Returns FileError's codes.
  absl::Status Sync();
  // Forbids appending from now on, and calls the subscribers once more. The log can still be read.
  void Close();

  int64_t next_sequence() const;  // the number of the next record
  bool closed() const;            // Close was called

  // Calls `changed` after every append and Close, until the subscription is destroyed. The call is
  // made on the thread that appends or closes, with no lock of the log held. `changed` must not
  // block, append to the log, close it or destroy the subscription. The log must outlive the
  // subscription.
  class Subscription;
  std::unique_ptr<Subscription> Subscribe(std::function<void()> changed) const;

  // Returns a reader whose first record is that of number `sequence`, or the oldest record after it
  // that is kept. The record need not exist yet. The log must outlive the reader. REQUIRES:
  // sequence >= 1.
  class Reader;
  std::unique_ptr<Reader> Read(int64_t sequence) const;

 private:
  struct Segment {
    std::string path;
    int64_t bytes = 0;  // of whole lines
  };
  struct Listener;

  RecordLog(std::string directory, const RecordLogOptions& options, std::unique_ptr<FileLock> lock)
      : directory_(std::move(directory)), options_(options), lock_(std::move(lock)) {}
  absl::Status Load(std::vector<std::string>* notes);
  absl::Status LoadSegment(int64_t first, const std::string& path, bool last,
                           std::vector<std::string>* notes);
  absl::StatusOr<int64_t> AppendLine(LogRecord::Kind kind, int64_t step, std::string_view text)
      ABSL_LOCKS_EXCLUDED(append_mutex_, mutex_);
  absl::Status PrepareSegment(int64_t line_bytes, int64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  // Does nothing if the directory was synced since the last segment was created.
  absl::Status SyncDirectory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  absl::Status WriteLine(std::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  // Takes note of a record that is in the file.
  void Count(LogRecord::Kind kind, int64_t sequence, int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Superseded(int64_t sequence, int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string directory_;
  const RecordLogOptions options_;
  const std::unique_ptr<FileLock> lock_;

  // Held over a write; mutex_ is not, so that readers never wait for the disk. Locked before
  // mutex_.
  Mutex append_mutex_;
  Descriptor file_ ABSL_GUARDED_BY(append_mutex_);        // the last segment
  bool torn_ ABSL_GUARDED_BY(append_mutex_) = false;      // what a failed write left is still there
  bool unsynced_ ABSL_GUARDED_BY(append_mutex_) = false;  // the directory, of the last segment

  mutable Mutex mutex_;
  std::map<int64_t, Segment> segments_ ABSL_GUARDED_BY(mutex_);  // by first sequence
  int64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t step_max_ ABSL_GUARDED_BY(mutex_) = 0;  // the highest step that is not superseded
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Fall-backs as (sequence, step), both growing: one to an earlier step makes those before it to
  // the same or later steps superfluous.
  std::vector<std::pair<int64_t, int64_t>> markers_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<std::shared_ptr<Listener>> listeners_ ABSL_GUARDED_BY(mutex_);
};

class RecordLog::Reader {
 public:
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Appends to *records the records that follow, markers of FallBack among them: `records_max` at
  // most, or none if there is nothing yet. Reads files, but does not wait for a record to be
  // appended. Sets their `superseded` to what is known now. Records that are damaged, or whose
  // segments were removed, are left out. A gap in the sequence numbers, or between the last one and
  // next_sequence(), shows them. Returns FileError's codes; *records may then have records whose
  // `superseded` is not set.
  absl::Status Next(int64_t records_max, std::vector<LogRecord>* records);
  // Returns the sequence number of the first record that the next call may give.
  int64_t next_sequence() const { return next_; }

 private:
  friend class RecordLog;
  Reader(const RecordLog* log, int64_t sequence) : log_(log), next_(sequence) {}
  // Opens the segment that holds next_ if none is open or the open one is read to its end. Returns
  // the number of bytes of it that may be read; 0 if there is nothing to read.
  absl::StatusOr<int64_t> Available();
  // Reads up to `bytes` more of the open segment into buffer_.
  absl::Status Fill(int64_t bytes);

  const RecordLog* const log_;
  int64_t next_;
  Descriptor file_;
  int64_t segment_ = 0;  // its first sequence number
  int64_t offset_ = 0;   // of the first byte that is not in buffer_
  std::string buffer_;   // lines of the segment that were not given out yet
};

class RecordLog::Subscription {
 public:
  // Ends the subscription, and waits for a call of `changed` that is under way. REQUIRES: the
  // caller holds no lock that `changed` takes.
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

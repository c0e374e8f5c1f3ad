// A place in a job's series of records from which a stream reads on: what is missing is found by
// the numbers, and told in its place.
#ifndef MEGATRAIN_SERVER_API_RECORD_CURSOR_H_
#define MEGATRAIN_SERVER_API_RECORD_CURSOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/transport/stream_source.h"
#include "server/worker/job_records.h"
#include "server/worker/record_log.h"

namespace megatrain {

struct RecordsRequest {
  std::shared_ptr<JobRecords> records;
  int64_t start_sequence = 1;  // 0 is 1
  bool follow = false;
  // Whether nothing will be recorded any more; an error ends the stream: the job was deleted.
  std::function<absl::StatusOr<bool>()> ended;
  std::function<void()> wake;
};

// Thread safety: one thread at a time.
class RecordCursor {
 public:
  struct Item {
    LogRecord record;  // if nothing is missed
    // The numbers of records that can no longer be had; 0: none are missed.
    int64_t missed_first = 0, missed_last = 0;
  };

  // INVALID_FIELD if start_sequence is negative or more than one above the newest. Reads what comes
  // first, which may take a while: the place is searched for in a file.
  static absl::StatusOr<std::unique_ptr<RecordCursor>> Open(RecordsRequest request,
                                                            const RecordLog* log);

  // kMessage: front() is the next item.
  absl::StatusOr<StreamNext> Advance();
  const Item& front() const { return items_.front(); }
  void Pop();

  // Of the record to come after what was popped.
  int64_t next_sequence() const { return next_; }

 private:
  RecordCursor(RecordsRequest request, const RecordLog* log);
  absl::Status Read();

  const RecordsRequest request_;  // keeps the log open
  const RecordLog* const log_;
  const int64_t stop_;  // without follow: the first record that is not wanted
  const std::unique_ptr<RecordLog::Subscription> subscription_;
  const std::unique_ptr<RecordLog::Reader> reader_;
  int64_t next_;
  std::deque<Item> items_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_RECORD_CURSOR_H_

// A place in a job's series of records from which a stream reads on. Records that are missing are
// found by the gaps in the sequence numbers, and told in their place.
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
  // Whether nothing will be recorded any more. An error, as when the job was deleted, ends the
  // stream with it.
  std::function<absl::StatusOr<bool>()> ended;
  // Called from any thread when there may be more records, with `follow`.
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

  // Reads the first records, which may take a while: their place is searched for in a file. `log`
  // is one of request.records. InvalidArgument (INVALID_FIELD) if start_sequence is negative or
  // more than one above the newest.
  static absl::StatusOr<std::unique_ptr<RecordCursor>> Open(RecordsRequest request,
                                                            const RecordLog* log);

  // Reads on if nothing is left. kMessage: front() is the next item. kNothing: there is no record
  // yet. kEnd: there will be none. Does not wait for a record.
  absl::StatusOr<StreamNext> Advance();
  // REQUIRES, as Pop: Advance has returned kMessage since the last Pop.
  const Item& front() const { return items_.front(); }
  void Pop();

  // The sequence number after the last item that was popped.
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

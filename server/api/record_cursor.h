// RecordCursor is a place in a job's series of records, from which a stream reads on. Missing
// records are found by the gaps in the sequence numbers, and each gap is given in its place.
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
  bool follow = false;         // false: only the records that are there at Open
  // Returns true if nothing will be recorded any more. Advance calls it and returns its error, as
  // when the job was deleted.
  std::function<absl::StatusOr<bool>()> ended;
  // Called from any thread when there may be more records, if `follow` is set.
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
  // is one of request.records, which keeps it open. InvalidArgument (INVALID_FIELD) if
  // start_sequence is negative or more than one above the newest; errors of RecordLog::Reader::Next
  // otherwise.
  static absl::StatusOr<std::unique_ptr<RecordCursor>> Open(RecordsRequest request,
                                                            const RecordLog* log);

  // Finds the next item, and reads on if none is left. Does not wait for a record. kMessage:
  // front() is the item. kNothing: there is no record yet. kEnd: there will be none. Errors are
  // those of `ended` and of RecordLog::Reader::Next.
  absl::StatusOr<StreamNext> Advance();
  // Returns the next item, valid until Pop. REQUIRES, as Pop does: Advance has returned kMessage
  // since the last Pop.
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

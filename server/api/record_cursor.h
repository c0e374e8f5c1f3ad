// RecordCursor reads a job's step metrics or log lines (RecordLog) in order, for a stream. Where
// sequence numbers are left out, records are missing. The cursor gives such a gap as an item of its
// own, in its place.
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
  // True: goes on with records as they come. False: ends after the records that are there at Open,
  // and perhaps a few that come meanwhile.
  bool follow = false;
  // Returns true if nothing will be recorded any more. Must be set. Advance calls it and returns
  // its error, for instance that the job was deleted.
  std::function<absl::StatusOr<bool>()> ended;
  // If `follow` is set, must be set, and is called from any thread when there may be more records,
  // but never once the cursor is destroyed. It must not block, nor destroy the cursor.
  std::function<void()> wake;
};

// Destruction waits for a call of `wake` that is under way. The destroying thread must hold no lock
// that `wake` takes.
//
// Thread safety: one thread at a time.
class RecordCursor {
 public:
  struct Item {
    // A text, or a fall-back to a checkpoint (record_log.h). Unset if missed_first is not 0.
    LogRecord record;
    // The first and last number of a run of missing records; 0: the item is a record.
    int64_t missed_first = 0, missed_last = 0;
  };

  // Returns a cursor at request.start_sequence. Reads the first records, which may take a while,
  // because their place is searched for in a file. Returns InvalidArgument (INVALID_FIELD) if
  // start_sequence is negative or more than one above the newest, and the errors of
  // RecordLog::Reader::Next. REQUIRES: `log` is one of the logs of request.records, which keeps it
  // open.
  static absl::StatusOr<std::unique_ptr<RecordCursor>> Open(RecordsRequest request,
                                                            const RecordLog* log);

  // Finds the next item, and reads more records from the disk if none is left. Does not wait for a
  // record. Returns kMessage if front() is the item, kNothing if there is no record yet (with
  // `follow` only), and kEnd if no more will be given. Returns the errors of `ended` and of
  // RecordLog::Reader::Next.
  absl::StatusOr<StreamNext> Advance();
  // Returns the next item, valid until Pop. REQUIRES, as Pop does: Advance has returned kMessage
  // since the last Pop.
  const Item& front() const { return items_.front(); }
  void Pop();

  // Returns the sequence number after the last item popped; at first, that of the cursor's start.
  int64_t next_sequence() const { return next_; }

 private:
  RecordCursor(RecordsRequest request, const RecordLog* log);
  absl::Status Read();

  const RecordsRequest request_;  // keeps the log open
  const RecordLog* const log_;
  const int64_t stop_;  // without follow: the first record that need not be given
  const std::unique_ptr<RecordLog::Subscription> subscription_;
  const std::unique_ptr<RecordLog::Reader> reader_;
  int64_t next_;
  std::deque<Item> items_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_RECORD_CURSOR_H_

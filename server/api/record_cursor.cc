#include "server/api/record_cursor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

// Read at a time: lines may be long, and what is read is held until it is sent.
constexpr int64_t kRecordsAtOnce = 20;

}  // namespace

RecordCursor::RecordCursor(RecordsRequest request, const RecordLog* log)
    : request_(std::move(request)),
      log_(log),
      stop_(log->next_sequence()),
      subscription_(request_.follow ? log->Subscribe(request_.wake) : nullptr),
      reader_(log->Read(std::max<int64_t>(1, request_.start_sequence))),
      next_(std::max<int64_t>(1, request_.start_sequence)) {}

absl::StatusOr<std::unique_ptr<RecordCursor>> RecordCursor::Open(RecordsRequest request,
                                                                 const RecordLog* log) {
  const int64_t newest = log->next_sequence() - 1;
  if (request.start_sequence < 0 || request.start_sequence > newest + 1) {
    return InvalidField("start_sequence", absl::StrCat("expects a number from 0 to ", newest + 1,
                                                       ", one above the newest record; got ",
                                                       request.start_sequence));
  }
  std::unique_ptr<RecordCursor> cursor(new RecordCursor(std::move(request), log));
  MT_RETURN_IF_ERROR(cursor->Read());
  return cursor;
}

absl::Status RecordCursor::Read() {
  std::vector<LogRecord> records;
  int64_t expected = next_;
  MT_RETURN_IF_ERROR(reader_->Next(kRecordsAtOnce, &records));
  const auto skip_to = [this, &expected](int64_t sequence) {
    if (sequence > expected) items_.push_back({LogRecord(), expected, sequence - 1});
    expected = std::max(expected, sequence);
  };
  for (LogRecord& record : records) {
    skip_to(record.sequence);
    expected = record.sequence + 1;
    items_.push_back({std::move(record)});
  }
  skip_to(reader_->next_sequence());
  return absl::OkStatus();
}

absl::StatusOr<StreamNext> RecordCursor::Advance() {
  if (!items_.empty()) return StreamNext::kMessage;
  if (!request_.follow && next_ >= stop_) return StreamNext::kEnd;
  // Before the read: what was recorded before the end is then read.
  MT_ASSIGN_OR_RETURN(const bool job_ended, request_.ended());
  const bool ended = !request_.follow || log_->closed() || job_ended;
  if (const absl::Status read = Read(); !read.ok()) {
    MT_RETURN_IF_ERROR(request_.ended().status());  // its files go when it is deleted
    return read;
  }
  if (!items_.empty()) return StreamNext::kMessage;
  return ended ? StreamNext::kEnd : StreamNext::kNothing;
}

void RecordCursor::Pop() {
  const Item& item = items_.front();
  next_ = (item.missed_first > 0 ? item.missed_last : item.record.sequence) + 1;
  items_.pop_front();
}

}  // namespace megatrain

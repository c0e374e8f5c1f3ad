#include "server/api/job_streams.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "engine/base/status.h"
#include "server/api/conversion.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWokenOnly{10000};  // the source wakes whenever there is news
// Whether the job has ended is not woken for.
constexpr milliseconds kEndPollInterval{500};

class WatchSource : public StreamSource<v1::WatchJobResponse> {
 public:
  WatchSource(std::string job_id, std::unique_ptr<JobWatch> watch, int64_t start_sequence,
              v1::JobView view)
      : job_id_(std::move(job_id)),
        watch_(std::move(watch)),
        first_view_(view),
        next_sequence_(std::max<int64_t>(1, start_sequence)) {}

  absl::StatusOr<StreamNext> Next(v1::WatchJobResponse* message) override {
    if (waiting_.empty()) {
      if (ended_) return StreamNext::kEnd;
      if (!Poll()) return JobNotFound(job_id_);
    }
    if (waiting_.empty()) return ended_ ? StreamNext::kEnd : StreamNext::kNothing;
    *message = std::move(waiting_.front());
    waiting_.pop_front();
    if (message->has_event()) next_sequence_ = message->event().sequence() + 1;
    if (message->has_missed()) next_sequence_ = message->missed().last_sequence() + 1;
    return StreamNext::kMessage;
  }

  // Progress can wait; what happens to a job is what its reader waits for.
  bool Urgent() const override { return watch_->HasEvents(); }
  int64_t next_sequence() const override { return next_sequence_; }
  milliseconds poll_interval() const override { return kWokenOnly; }

 private:
  // False: the job is not there any more.
  bool Poll() {
    const JobWatch::Update update = watch_->Poll(kBatchRecordsMax);
    if (update.deleted) return false;
    ended_ = update.ended;
    v1::WatchJobResponse job;
    if (update.job != nullptr) {
      ToProto(*update.job, first_ ? first_view_ : v1::JOB_VIEW_BASIC, job.mutable_job());
    }
    // The job as it is opens the stream; later it follows the events that brought it there.
    if (first_ && job.has_job()) waiting_.push_back(job);
    if (update.missed_first > 0) {
      v1::MissedRange* const missed = waiting_.emplace_back().mutable_missed();
      missed->set_first_sequence(update.missed_first);
      missed->set_last_sequence(update.missed_last);
    }
    for (const JobEvent& event : update.events) {
      ToProto(event, waiting_.emplace_back().mutable_event());
    }
    if (!first_ && job.has_job()) waiting_.push_back(std::move(job));
    first_ = false;
    return true;
  }

  const std::string job_id_;
  const std::unique_ptr<JobWatch> watch_;
  const v1::JobView first_view_;
  int64_t next_sequence_;
  bool first_ = true;
  bool ended_ = false;
  std::deque<v1::WatchJobResponse> waiting_;
};

// The common part of both series. `Series` has the types and AddRecord, which converts a record, or
// leaves the message as it is and returns an error.
template <class Series>
class RecordSource : public StreamSource<typename Series::Message> {
 public:
  using Message = typename Series::Message;

  explicit RecordSource(std::unique_ptr<RecordCursor> cursor) : cursor_(std::move(cursor)) {}

  absl::StatusOr<StreamNext> Next(Message* message) override {
    size_t records = 0;
    for (size_t bytes = 0; records < kBatchRecordsMax && bytes < kBatchBytesMax;) {
      const absl::StatusOr<StreamNext> next = cursor_->Advance();
      // The records in the message come before an error, which the next call meets again.
      if (records > 0 && (!next.ok() || *next != StreamNext::kMessage)) break;
      MT_RETURN_IF_ERROR(next.status());
      if (*next != StreamNext::kMessage) return *next;
      const RecordCursor::Item& item = cursor_->front();
      if (item.missed_first == 0 && item.record.kind == LogRecord::Kind::kText) {
        const absl::Status added = Series::AddRecord(item.record, message);
        if (records > 0 && !added.ok()) break;
        MT_RETURN_IF_ERROR(added);
        bytes += item.record.text.size();
        ++records;
      } else if (records > 0) {
        break;  // a message of its own, the next
      } else {
        if (item.missed_first > 0) {
          message->mutable_missed()->set_first_sequence(item.missed_first);
          message->mutable_missed()->set_last_sequence(item.missed_last);
        } else {
          Series::SetFellBack(item.record, message);
        }
        cursor_->Pop();
        break;
      }
      cursor_->Pop();
    }
    return StreamNext::kMessage;
  }

  int64_t next_sequence() const override { return cursor_->next_sequence(); }
  milliseconds poll_interval() const override { return kEndPollInterval; }

 private:
  const std::unique_ptr<RecordCursor> cursor_;
};

struct StepMetricsSeries {
  using Message = v1::StreamStepMetricsResponse;

  static absl::Status AddRecord(const LogRecord& record, Message* message) {
    MT_ASSIGN_OR_RETURN(const StepRecord step, ParseStepRecord(record.text));
    v1::StepMetricsRecord* const proto = message->mutable_batch()->add_records();
    proto->set_sequence(record.sequence);
    proto->set_superseded(record.superseded);
    ToProto(step, proto->mutable_metrics());
    return absl::OkStatus();
  }
  static void SetFellBack(const LogRecord& record, Message* message) {
    message->mutable_fell_back()->set_sequence(record.sequence);
    message->mutable_fell_back()->set_checkpoint_step(record.step);
  }
};

struct LogSeries {
  using Message = v1::StreamLogsResponse;

  static absl::Status AddRecord(const LogRecord& record, Message* message) {
    v1::LogLine line;
    line.set_sequence(record.sequence);
    MT_RETURN_IF_ERROR(ReadLogLine(record.text, &line));
    *message->mutable_batch()->add_lines() = std::move(line);
    return absl::OkStatus();
  }
  // Lines are never superseded, so this does not happen; told as what it would be to a reader.
  static void SetFellBack(const LogRecord& record, Message* message) {
    message->mutable_missed()->set_first_sequence(record.sequence);
    message->mutable_missed()->set_last_sequence(record.sequence);
  }
};

class ExportSource : public StreamSource<v1::ExportJobResponse> {
 public:
  ExportSource(v1::ExportedModel exported, std::future<absl::Status> ended)
      : exported_(std::move(exported)), ended_(std::move(ended)) {}

  absl::StatusOr<StreamNext> Next(v1::ExportJobResponse* message) override {
    if (!ended_.valid()) return StreamNext::kEnd;
    if (ended_.wait_for(milliseconds(0)) != std::future_status::ready) return StreamNext::kNothing;
    MT_RETURN_IF_ERROR(ended_.get());
    *message->mutable_exported() = exported_;
    return StreamNext::kMessage;
  }

  int64_t next_sequence() const override { return 0; }
  milliseconds poll_interval() const override { return kWokenOnly; }

 private:
  const v1::ExportedModel exported_;
  std::future<absl::Status> ended_;  // not valid once it was told
};

}  // namespace

std::unique_ptr<StreamSource<v1::WatchJobResponse>> NewWatchSource(const std::string& job_id,
                                                                   std::unique_ptr<JobWatch> watch,
                                                                   int64_t start_sequence,
                                                                   v1::JobView view) {
  return std::make_unique<WatchSource>(job_id, std::move(watch), start_sequence, view);
}

std::unique_ptr<StreamSource<v1::StreamStepMetricsResponse>> NewStepMetricsSource(
    std::unique_ptr<RecordCursor> cursor) {
  return std::make_unique<RecordSource<StepMetricsSeries>>(std::move(cursor));
}

std::unique_ptr<StreamSource<v1::StreamLogsResponse>> NewLogSource(
    std::unique_ptr<RecordCursor> cursor) {
  return std::make_unique<RecordSource<LogSeries>>(std::move(cursor));
}

std::unique_ptr<StreamSource<v1::ExportJobResponse>> NewExportSource(
    v1::ExportedModel exported, std::future<absl::Status> ended) {
  return std::make_unique<ExportSource>(std::move(exported), std::move(ended));
}

}  // namespace megatrain

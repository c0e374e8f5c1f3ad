#include "server/worker/job_records.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// A longer one is cut: JSON makes six bytes of one at worst, and a record has at most 1 MiB.
constexpr size_t kLineBytesMax = size_t{128} << 10;

std::string LineJson(std::string text) {
  if (text.size() > kLineBytesMax) {
    text = absl::StrCat(text.substr(0, kLineBytesMax), " ... (", text.size(), " bytes, cut)");
  }
  const nlohmann::ordered_json json = {{"time", Rfc3339Now()}, {"text", std::move(text)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobRecords>> JobRecords::Open(const std::string& directory) {
  std::vector<std::string> notes;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RecordLog> metrics,
                      RecordLog::Open(JoinPath(directory, "metrics"), kStepMetricsOptions, &notes));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RecordLog> log,
                      RecordLog::Open(JoinPath(directory, "log"), kLogLinesOptions, &notes));
  std::unique_ptr<JobRecords> records(
      new JobRecords(directory, std::move(metrics), std::move(log)));
  // A log that cannot be written can still be read.
  for (const std::string& note : notes) records->AddLine(0, note).IgnoreError();
  // Damage that could not be told is found again when they are opened next.
  MutexLock lock(&records->mutex_);
  records->waiting_.clear();
  records->waiting_bytes_ = 0;
  records->lost_ = 0;
  return records;
}

absl::Status JobRecords::Write(const Record& record) {
  switch (record.kind) {
    case Record::Kind::kStep:
      return metrics_->Append(record.step, record.text).status();
    case Record::Kind::kLine:
      return log_->Append(record.step, record.text).status();
    case Record::Kind::kFallBack:
      return metrics_->FallBack(record.step);
  }
  return absl::OkStatus();
}

void JobRecords::Keep(Record record, const absl::Status& status) {
  if (!IsDiskFull(status) || waiting_bytes_ + record.text.size() > kWaitingBytesMax) {
    ++lost_;
    return;
  }
  waiting_bytes_ += record.text.size();
  waiting_.push_back(std::move(record));
}

absl::Status JobRecords::WriteWaiting(int64_t step) {
  while (!waiting_.empty()) {
    if (absl::Status status = Write(waiting_.front()); !status.ok()) {
      if (IsDiskFull(status)) return status;
      ++lost_;
    }
    waiting_bytes_ -= waiting_.front().text.size();
    waiting_.pop_front();
  }
  if (lost_ == 0) return absl::OkStatus();
  const bool one = lost_ == 1;
  MT_RETURN_IF_ERROR(
      Write({Record::Kind::kLine, step,
             LineJson(absl::StrCat(lost_, one ? " record" : " records",
                                   " of this job's metrics and log could not be written and ",
                                   one ? "is" : "are", " missing"))}));
  lost_ = 0;
  return absl::OkStatus();
}

absl::Status JobRecords::Add(Record record) {
  MutexLock lock(&mutex_);
  const bool failing = !waiting_.empty() || lost_ > 0;
  absl::Status status = WriteWaiting(record.step);
  // Behind what waits, never before it.
  if (waiting_.empty()) status = Write(record);
  if (status.ok()) return status;
  Keep(std::move(record), status);
  return failing && !IsDiskFull(status) ? absl::OkStatus() : status;
}

absl::Status JobRecords::AddStep(const StepRecord& record) {
  return Add({Record::Kind::kStep, record.step, StepRecordJson(record)});
}

absl::Status JobRecords::AddLine(int64_t step, const std::string& text) {
  return Add({Record::Kind::kLine, step, LineJson(text)});
}

absl::Status JobRecords::FallBack(int64_t step) { return Add({Record::Kind::kFallBack, step, ""}); }

absl::Status JobRecords::Sync() {
  MT_RETURN_IF_ERROR(metrics_->Sync());
  return log_->Sync();
}

void JobRecords::Close() {
  {
    MutexLock lock(&mutex_);
    WriteWaiting(0).IgnoreError();
    waiting_.clear();
    waiting_bytes_ = 0;
    lost_ = 0;
  }
  metrics_->Close();
  log_->Close();
}

bool JobRecords::HasWaiting() const {
  MutexLock lock(&mutex_);
  return !log_->closed() && (!waiting_.empty() || lost_ > 0);
}

absl::StatusOr<std::shared_ptr<JobRecords>> JobRecordsDirectory::Open(const std::string& job_id) {
  MutexLock lock(&mutex_);
  // Users get theirs here, under the lock: one that only the map holds has no user.
  std::erase_if(open_, [&job_id](const auto& entry) {
    return entry.first != job_id && entry.second.use_count() == 1 && !entry.second->HasWaiting();
  });
  if (removed_.count(job_id) == 1) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " was deleted"));
  }
  const auto known = open_.find(job_id);
  if (known != open_.end()) return known->second;
  MT_ASSIGN_OR_RETURN(std::shared_ptr<JobRecords> opened,
                      JobRecords::Open(JoinPath(directory_, job_id)));
  open_[job_id] = opened;
  return opened;
}

int64_t JobRecordsDirectory::LastStep(const std::string& job_id) {
  const absl::StatusOr<std::shared_ptr<JobRecords>> records = Open(job_id);
  if (!records.ok()) return 0;
  const RecordLog& metrics = (*records)->metrics();
  const int64_t newest = metrics.next_sequence() - 1;
  if (newest < 1) return 0;
  std::vector<LogRecord> found;
  if (!metrics.Read(newest)->Next(1, &found).ok() || found.empty()) return 0;
  return found.back().step;
}

void JobRecordsDirectory::Remove(const std::string& job_id) {
  std::shared_ptr<JobRecords> records;  // closed without the lock
  {
    MutexLock lock(&mutex_);
    removed_.insert(job_id);
    const auto known = open_.find(job_id);
    if (known != open_.end()) {
      records = std::move(known->second);
      open_.erase(known);
    }
  }
  if (records != nullptr) records->Close();
}

}  // namespace megatrain

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

std::string LineJson(const std::string& text) {
  nlohmann::ordered_json json;
  json["time"] = Rfc3339Now();
  json["text"] = text.size() <= kLineBytesMax ? text
                                              : absl::StrCat(text.substr(0, kLineBytesMax),
                                                             " ... (", text.size(), " bytes, cut)");
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobRecords>> JobRecords::Open(const std::string& directory) {
  std::vector<std::string> notes;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RecordLog> metrics,
                      RecordLog::Open(JoinPath(directory, "metrics"), kStepMetricsOptions, &notes));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RecordLog> log,
                      RecordLog::Open(JoinPath(directory, "log"), kLogLinesOptions, &notes));
  std::unique_ptr<JobRecords> records(new JobRecords(std::move(metrics), std::move(log)));
  // A log that cannot be written can still be read.
  for (const std::string& note : notes) records->AddLine(0, note).IgnoreError();
  return records;
}

absl::Status JobRecords::AppendLine(int64_t step, const std::string& text) {
  return log_->Append(step, LineJson(text)).status();
}

absl::Status JobRecords::Note(int64_t step, const absl::Status& status) {
  int64_t lost = 0;
  {
    MutexLock lock(&mutex_);
    if (!status.ok()) return lost_++ == 0 ? status : absl::OkStatus();
    std::swap(lost, lost_);
  }
  if (lost == 0) return absl::OkStatus();
  const absl::Status told =
      AppendLine(step, absl::StrCat(lost, lost == 1 ? " record" : " records",
                                    " of this job's metrics and log could not be written and ",
                                    lost == 1 ? "is" : "are", " missing"));
  if (!told.ok()) {
    MutexLock lock(&mutex_);
    lost_ += lost;
  }
  return absl::OkStatus();
}

absl::Status JobRecords::AddStep(const StepRecord& record) {
  return Note(record.step, metrics_->Append(record.step, StepRecordJson(record)).status());
}

absl::Status JobRecords::AddLine(int64_t step, const std::string& text) {
  return Note(step, AppendLine(step, text));
}

absl::Status JobRecords::FallBack(int64_t step) { return Note(step, metrics_->FallBack(step)); }

absl::Status JobRecords::Sync() {
  MT_RETURN_IF_ERROR(metrics_->Sync());
  return log_->Sync();
}

void JobRecords::Close() {
  metrics_->Close();
  log_->Close();
}

absl::StatusOr<std::shared_ptr<JobRecords>> JobRecordsDirectory::Open(const std::string& job_id) {
  MutexLock lock(&mutex_);
  // Users get theirs here, under the lock: one that only the map holds has no user.
  std::erase_if(open_, [&job_id](const auto& entry) {
    return entry.first != job_id && entry.second.use_count() == 1;
  });
  const auto known = open_.find(job_id);
  if (known != open_.end()) return known->second;
  MT_ASSIGN_OR_RETURN(std::shared_ptr<JobRecords> opened,
                      JobRecords::Open(JoinPath(directory_, job_id)));
  open_[job_id] = opened;
  return opened;
}

}  // namespace megatrain

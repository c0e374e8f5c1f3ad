// What a job leaves to be read: its step metrics and its log lines, in the directory
//   metrics/   a record a step: StepRecordJson
//   log/       a record a line: LogLineJson
// Both are kept for as long as the directory is, and are appended to again when the job goes on
// after a restart.
//
// Thread safety: all methods from any thread.
#ifndef MEGATRAIN_SERVER_WORKER_JOB_RECORDS_H_
#define MEGATRAIN_SERVER_WORKER_JOB_RECORDS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/trace/step_record.h"
#include "server/worker/record_log.h"

namespace megatrain {

// A step's record takes 600 to 700 bytes: 16 segments of 8 MiB hold the last 190,000 steps.
inline constexpr RecordLogOptions kStepMetricsOptions = {int64_t{8} << 20, 16};
// A line takes 100 to 200 bytes: 4 segments of 4 MiB hold the last 80,000 lines.
inline constexpr RecordLogOptions kLogLinesOptions = {int64_t{4} << 20, 4};

class JobRecords {
 public:
  static constexpr size_t kWaitingBytesMax = size_t{4} << 20;

  // What was found torn or damaged is told in the log. One JobRecords at a time may be open on a
  // directory: see JobRecordsDirectory.
  static absl::StatusOr<std::unique_ptr<JobRecords>> Open(const std::string& directory);

  // What meets a full disk (see IsDiskFull) waits in memory, kWaitingBytesMax at most, and is
  // written, in its order, by the first call that finds room; until then every call says that the
  // disk is full. What fails otherwise is lost: the first failure of a series is returned, and how
  // many records are missing is told in the log when it can be written again.
  absl::Status AddStep(const StepRecord& record);
  absl::Status AddLine(int64_t step, const std::string& text);
  // The job goes on after `step`.
  absl::Status FallBack(int64_t step);
  // To be called before a checkpoint becomes valid, so that no power cut leaves it without the
  // records of its steps.
  absl::Status Sync();
  // The job has ended for good: readers that follow end too. Tries once more to write what waits.
  void Close();

  const std::string& directory() const { return directory_; }

  const RecordLog& metrics() const { return *metrics_; }
  const RecordLog& log() const { return *log_; }

 private:
  struct Record {
    enum class Kind { kStep, kLine, kFallBack };
    Kind kind = Kind::kStep;
    int64_t step = 0;
    std::string text;
  };

  JobRecords(std::string directory, std::unique_ptr<RecordLog> metrics,
             std::unique_ptr<RecordLog> log)
      : directory_(std::move(directory)), metrics_(std::move(metrics)), log_(std::move(log)) {}
  absl::Status Add(Record record);
  absl::Status Write(const Record& record);
  // What waits, then how many are missing. Stops at the first that finds no room.
  absl::Status WriteWaiting(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a record that could not be written.
  void Keep(Record record, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const std::unique_ptr<RecordLog> metrics_, log_;
  Mutex mutex_;  // held over writes, which keeps the order of records
  std::deque<Record> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;  // records since writing began to fail
};

// The records of all jobs, beneath one directory. An open job's are shared; those that nobody uses
// are closed when the next job's are opened.
class JobRecordsDirectory {
 public:
  explicit JobRecordsDirectory(std::string directory) : directory_(std::move(directory)) {}

  // `directory`/JOB_ID. NotFound after Remove. REQUIRES: job_id is one path component.
  absl::StatusOr<std::shared_ptr<JobRecords>> Open(const std::string& job_id);
  // The job is deleted and its directory about to be removed: whoever follows its records is told
  // that there will be no more, and nobody opens them again.
  void Remove(const std::string& job_id);

 private:
  const std::string directory_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<JobRecords>> open_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> removed_ ABSL_GUARDED_BY(mutex_);  // a few bytes each, until the end
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_JOB_RECORDS_H_

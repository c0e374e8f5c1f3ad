// JobRecords keeps a job's step metrics and its log lines in two RecordLogs beneath a directory:
//   metrics/   one record for a step: StepRecordJson
//   log/       one record for a line: {"time": RFC 3339, "text": ...}
// When the job goes on after a restart, the logs of the earlier process are appended to.
//
// Thread safety: all methods of both classes may be called from any thread. They wait for the disk.
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

// A step's record usually takes 600 to 700 bytes: 16 segments of 8 MiB hold about the last 190,000
// steps.
inline constexpr RecordLogOptions kStepMetricsOptions = {int64_t{8} << 20, 16};
// A line usually takes 100 to 200 bytes: 4 segments of 4 MiB hold about the last 80,000 lines.
inline constexpr RecordLogOptions kLogLinesOptions = {int64_t{4} << 20, 4};

class JobRecords {
 public:
  // The most bytes of records that wait in memory for a full disk.
  static constexpr size_t kWaitingBytesMax = size_t{4} << 20;

  // Opens the records in `directory`, which is made if it is missing. Damaged records that are
  // found are reported as lines in log(), if it can be written. Returns FailedPrecondition if
  // another JobRecords has the directory open (see JobRecordsDirectory), and otherwise FileError's
  // codes.
  static absl::StatusOr<std::unique_ptr<JobRecords>> Open(const std::string& directory);

  // Add a record: the metrics of a step, or a line of the log with the time now. A record that
  // cannot be written has one of these fates:
  // - If the disk is full (IsDiskFull) it waits in memory. The first call that finds room writes
  //   the waiting records in their order. Until then every call returns that the disk is full.
  // - If the disk is full and kWaitingBytesMax would be exceeded, it is lost, and the call returns
  //   that the disk is full.
  // - After another error it is lost. The first call of a series of such calls returns the error
  //   (FileError's codes, or FailedPrecondition after Close), and the later ones return OK. The
  //   first returns OK too if records were waiting, or had been lost, before it.
  // The first call that can write to the log again adds a line that says how many are missing.
  //
  // AddLine cuts a text after 128 KiB, and then adds its length. Its `step` is the last one that is
  // done.
  absl::Status AddStep(const StepRecord& record);
  absl::Status AddLine(int64_t step, const std::string& text);
  // Records that the job goes on after `step`, which supersedes the metrics of later steps. Returns
  // the errors of AddStep.
  absl::Status FallBack(int64_t step);
  // Returns when all written records are on stable storage. Records that wait in memory are left
  // out. To be called before a checkpoint becomes valid, so that no power cut leaves it without the
  // records of its steps. Returns FileError's codes.
  absl::Status Sync();
  // Says that the job has ended for good, so that readers that follow its records end too. Tries
  // once more to write the waiting records, and forgets those that find no room. Afterwards nothing
  // can be added. May be called again.
  void Close();
  // Returns true if records wait in memory, or the log does not say yet how many were lost. Returns
  // false after Close.
  bool HasWaiting() const;

  const std::string& directory() const { return directory_; }

  // The logs, to be read. They live as long as this. A subscriber of them must not call this.
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
  // Writes the waiting records, then how many are missing. Stops at the first that finds no room.
  absl::Status WriteWaiting(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps a record that could not be written, or counts it as lost.
  void Keep(Record record, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const std::unique_ptr<RecordLog> metrics_, log_;
  mutable Mutex mutex_;  // held over writes, which keeps the order of records
  std::deque<Record> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;  // records since writing began to fail
};

// JobRecordsDirectory opens the records of all jobs, beneath one directory. All users of a job's
// records share one JobRecords. When the records of another job are opened, those that are no
// longer used are destroyed, except those that wait for a full disk (JobRecords::HasWaiting).
class JobRecordsDirectory {
 public:
  explicit JobRecordsDirectory(std::string directory) : directory_(std::move(directory)) {}

  // Returns the records in `directory`/JOB_ID, and opens them if they are not open. The result may
  // outlive this. Returns NotFound after Remove, and the errors of JobRecords::Open. REQUIRES:
  // job_id is one path component.
  absl::StatusOr<std::shared_ptr<JobRecords>> Open(const std::string& job_id);
  // Returns the step of the job's newest record of step metrics, which may be that of a FallBack.
  // Returns 0 if there is none or it cannot be read. Opens the job's records, as Open does.
  int64_t LastStep(const std::string& job_id);
  // Closes (JobRecords::Close) the records of a deleted job, if they are open. The caller may then
  // remove their directory. Open returns NotFound from now on.
  void Remove(const std::string& job_id);

 private:
  const std::string directory_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<JobRecords>> open_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> removed_ ABSL_GUARDED_BY(mutex_);  // a few bytes each, until the end
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_JOB_RECORDS_H_

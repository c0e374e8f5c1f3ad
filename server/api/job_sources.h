// What the streams of a job are fed from.
#ifndef MEGATRAIN_SERVER_API_JOB_SOURCES_H_
#define MEGATRAIN_SERVER_API_JOB_SOURCES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "megatrain/v1/job_service.pb.h"
#include "server/api/conversion.h"
#include "server/api/record_cursor.h"
#include "server/manager/job_watch.h"
#include "server/transport/stream_source.h"

namespace megatrain {

// A message holds at most this many records, and no more once it is this long.
inline constexpr int kBatchRecordsMax = 100;
inline constexpr size_t kBatchBytesMax = size_t{64} << 10;

// A job and its events. Ends when the job has ended and all is said, and as JOB_NOT_FOUND when it
// was deleted. `start_sequence` is the one that `watch` begins with, `view` that of the first job.
std::unique_ptr<StreamSource<v1::WatchJobResponse>> NewWatchSource(const std::string& job_id,
                                                                   std::unique_ptr<JobWatch> watch,
                                                                   int64_t start_sequence,
                                                                   JobView view);

// Step metrics and log lines.
std::unique_ptr<StreamSource<v1::StreamStepMetricsResponse>> NewStepMetricsSource(
    std::unique_ptr<RecordCursor> cursor);
std::unique_ptr<StreamSource<v1::StreamLogsResponse>> NewLogSource(
    std::unique_ptr<RecordCursor> cursor);

// How an export stands: written by those that do it, in whatever order they come, and read by its
// stream.
//
// Thread safety: all methods may be called from any thread.
class ExportProgress {
 public:
  explicit ExportProgress(std::function<void()> wake) : wake_(std::move(wake)) {}

  // What will have been exported.
  void Begun(v1::ExportedModel exported);
  void Done(const absl::Status& status);
  // Nothing until it is done.
  std::optional<absl::StatusOr<v1::ExportedModel>> Result() const;

 private:
  const std::function<void()> wake_;
  mutable Mutex mutex_;
  std::optional<v1::ExportedModel> exported_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> done_ ABSL_GUARDED_BY(mutex_);
};

std::unique_ptr<StreamSource<v1::ExportJobResponse>> NewExportSource(
    std::shared_ptr<ExportProgress> progress);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_JOB_SOURCES_H_

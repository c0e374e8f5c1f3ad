// Makes the sources of the streams of a job. A StreamCall sends the messages of its source.
#ifndef MEGATRAIN_SERVER_API_JOB_STREAMS_H_
#define MEGATRAIN_SERVER_API_JOB_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "megatrain/v1/job_service.pb.h"
#include "server/api/conversion.h"
#include "server/api/record_cursor.h"
#include "server/manager/job_table.h"
#include "server/transport/stream_source.h"

namespace megatrain {

// A message of step metrics or log lines takes no more records once it has kBatchRecordsMax, or
// once their texts have kBatchBytesMax bytes.
inline constexpr int kBatchRecordsMax = 100;
inline constexpr size_t kBatchBytesMax = size_t{64} << 10;

// Streams a job and its events from `start_sequence` on (0 or 1: all), where `watch` must begin.
// - First the job as it is, in `view`.
// - Then the range of events that are not kept any more, if there are any, and the kept events.
// - Then events as they happen, each group followed by the job as it is then (JOB_VIEW_BASIC). A
//   change without an event, such as progress, comes as the job alone.
// The stream ends when the job has ended and all its events are sent, and with NotFound
// (JOB_NOT_FOUND) when the job is deleted.
std::unique_ptr<StreamSource<v1::WatchJobResponse>> NewWatchSource(const std::string& job_id,
                                                                   std::unique_ptr<JobWatch> watch,
                                                                   int64_t start_sequence,
                                                                   v1::JobView view);

// Stream step metrics or log lines in batches, from the cursor's position on. A range of missed
// records, and for metrics a fall-back to a checkpoint, is a message of its own between the
// batches. The stream ends as RecordCursor::Advance says, or with the error of an unreadable
// record.
std::unique_ptr<StreamSource<v1::StreamStepMetricsResponse>> NewStepMetricsSource(
    std::unique_ptr<RecordCursor> cursor);
std::unique_ptr<StreamSource<v1::StreamLogsResponse>> NewLogSource(
    std::unique_ptr<RecordCursor> cursor);

// Streams `exported` once `ended` holds OK, and then ends. Ends with the error if `ended` holds
// one. Until then only heartbeats are sent. The code that sets `ended` must wake the stream.
std::unique_ptr<StreamSource<v1::ExportJobResponse>> NewExportSource(
    v1::ExportedModel exported, std::future<absl::Status> ended);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_JOB_STREAMS_H_

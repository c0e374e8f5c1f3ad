// Makes the StreamSources of a job's streams: events, step metrics, log lines and an export. A
// StreamCall (server/transport/stream_call.h) sends the messages of its source to the reader.
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

// Streams a job and its events from `start_sequence` on (0 or 1: all). REQUIRES: `watch` begins
// there, and has not been polled. The messages are, in this order:
// - the job as it is, in `view`;
// - the range of missed events, if some are not kept any more, and then the kept events;
// - events as they happen (to a slow reader, after the range of those that it has missed), and
//   after a group of them the job as it is then (JOB_VIEW_BASIC), if it has changed since it was
//   sent. A change without an event, such as progress, comes as the job alone.
// The stream ends when the job has ended and all its events are sent, and with NotFound
// (JOB_NOT_FOUND) when the job is deleted.
std::unique_ptr<StreamSource<v1::WatchJobResponse>> NewWatchSource(const std::string& job_id,
                                                                   std::unique_ptr<JobWatch> watch,
                                                                   int64_t start_sequence,
                                                                   v1::JobView view);

// Stream step metrics or log lines in batches, from the cursor's position on. A range of missed
// records, and for metrics a fall-back to a checkpoint, is a message of its own between the
// batches. The stream ends when RecordCursor::Advance returns kEnd or an error, and with DataLoss
// at a record that cannot be parsed.
std::unique_ptr<StreamSource<v1::StreamStepMetricsResponse>> NewStepMetricsSource(
    std::unique_ptr<RecordCursor> cursor);
std::unique_ptr<StreamSource<v1::StreamLogsResponse>> NewLogSource(
    std::unique_ptr<RecordCursor> cursor);

// Streams `exported` once `ended` holds OK, and then ends. Ends with the error if `ended` holds
// one. Before that it has no message, so that the StreamCall sends only heartbeats. The code that
// sets `ended` must then wake the stream. REQUIRES: `ended` is valid, and its promise is not
// destroyed before it is set.
std::unique_ptr<StreamSource<v1::ExportJobResponse>> NewExportSource(
    v1::ExportedModel exported, std::future<absl::Status> ended);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_JOB_STREAMS_H_

// The position of a stream in its series.
#ifndef MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_
#define MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

#include <cstdint>

#include "megatrain/v1/job_service.pb.h"
#include "megatrain/v1/node_service.pb.h"

namespace megatrain::client {

// Returns the sequence number to open the stream at if the connection is lost after `message`.
// `next` is the number before `message`, which messages without numbers leave.
int64_t PositionAfter(const v1::WatchJobResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamStepMetricsResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamLogsResponse& message, int64_t next);
// Returns `next`: a node's states are not numbered.
int64_t PositionAfter(const v1::WatchNodeResponse& message, int64_t next);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

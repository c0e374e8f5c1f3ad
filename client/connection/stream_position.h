// Where in a series a stream is.
#ifndef MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_
#define MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

#include <cstdint>

#include "megatrain/v1/job_service.pb.h"
#include "megatrain/v1/node_service.pb.h"

namespace megatrain::client {

// The number to start with if the connection is lost after `message`; `next` was it before.
int64_t PositionAfter(const v1::WatchJobResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamStepMetricsResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamLogsResponse& message, int64_t next);
// A node's states are not numbered.
int64_t PositionAfter(const v1::WatchNodeResponse& message, int64_t next);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

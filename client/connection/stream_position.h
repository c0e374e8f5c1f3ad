// Finds the place at which a lost stream is opened again.
#ifndef MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_
#define MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

#include <cstdint>

#include "megatrain/v1/job_service.pb.h"
#include "megatrain/v1/node_service.pb.h"

namespace megatrain::client {

// Return the sequence number that a stream must be opened at if its connection is lost after
// `message`. `next` is the result for the message before, or the number that the stream was opened
// at. It is returned unchanged for a message without a number.
int64_t PositionAfter(const v1::WatchJobResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamStepMetricsResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamLogsResponse& message, int64_t next);
// Returns `next`, because a node's states have no numbers.
int64_t PositionAfter(const v1::WatchNodeResponse& message, int64_t next);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

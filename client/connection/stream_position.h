// Finds where to open a stream again.
#ifndef MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_
#define MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

#include <cstdint>

#include "megatrain/v1/job_service.pb.h"
#include "megatrain/v1/node_service.pb.h"

namespace megatrain::client {

// Returns the sequence number at which to open the stream if the connection is lost after
// `message`. `next` is that number before `message` came. A message without a number leaves it
// unchanged.
int64_t PositionAfter(const v1::WatchJobResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamStepMetricsResponse& message, int64_t next);
int64_t PositionAfter(const v1::StreamLogsResponse& message, int64_t next);
// Returns `next`, because a node's states have no numbers.
int64_t PositionAfter(const v1::WatchNodeResponse& message, int64_t next);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_STREAM_POSITION_H_

#include "client/connection/stream_position.h"

#include <algorithm>

namespace megatrain::client {

int64_t PositionAfter(const v1::WatchJobResponse& message, int64_t next) {
  if (message.has_event()) next = std::max(next, message.event().sequence() + 1);
  if (message.has_missed()) next = std::max(next, message.missed().last_sequence() + 1);
  return next;
}

int64_t PositionAfter(const v1::StreamStepMetricsResponse& message, int64_t next) {
  for (const v1::StepMetricsRecord& record : message.batch().records()) {
    next = std::max(next, record.sequence() + 1);
  }
  if (message.has_fell_back()) next = std::max(next, message.fell_back().sequence() + 1);
  if (message.has_missed()) next = std::max(next, message.missed().last_sequence() + 1);
  return next;
}

int64_t PositionAfter(const v1::StreamLogsResponse& message, int64_t next) {
  for (const v1::LogLine& line : message.batch().lines()) {
    next = std::max(next, line.sequence() + 1);
  }
  if (message.has_missed()) next = std::max(next, message.missed().last_sequence() + 1);
  return next;
}

int64_t PositionAfter(const v1::WatchNodeResponse&, int64_t next) { return next; }

}  // namespace megatrain::client

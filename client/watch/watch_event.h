// What reaches a view of a job: messages of its streams, and the connection's coming and going.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_EVENT_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_EVENT_H_

#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "megatrain/v1/job_service.pb.h"
#include "megatrain/v1/node_service.pb.h"

namespace megatrain::client {

enum class WatchStream { kJob, kMetrics, kLogs, kNode };

// The server is away, and is tried again at `retry_at`.
struct StreamLost {
  WatchStream stream;
  std::string why;
  absl::Time retry_at;
};
struct StreamRestored {
  WatchStream stream;
};
// What comes next begins at the beginning of the series.
struct StreamRestarted {
  WatchStream stream;
};
// OK: all was sent, since the job has ended.
struct StreamEnded {
  WatchStream stream;
  absl::Status status;
};

using WatchEvent =
    std::variant<v1::WatchJobResponse, v1::StreamStepMetricsResponse, v1::StreamLogsResponse,
                 v1::WatchNodeResponse, StreamLost, StreamRestored, StreamRestarted, StreamEnded>;

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_EVENT_H_

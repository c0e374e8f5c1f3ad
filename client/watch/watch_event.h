// Events that a view of a job receives: messages of its streams, and changes of the connection.
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

// The stream broke off: its connection is lost, or the server is starting, stopping or overloaded.
// The stream is opened again at `retry_at`. After a lost connection it is opened sooner if the
// server is back. If that fails, another StreamLost comes.
struct StreamLost {
  WatchStream stream;
  std::string why;  // for people; not made printable (text.h)
  absl::Time retry_at;
};
// The server answers again. The stream's next message follows.
struct StreamRestored {
  WatchStream stream;
};
// The stream starts over from its first record, because the server has fewer than were read, as
// after a power cut. The receiver must drop what it has of this stream.
struct StreamRestarted {
  WatchStream stream;
};
// The stream has ended. `status` is OK if everything was sent because the job has ended. Otherwise
// it is the error.
struct StreamEnded {
  WatchStream stream;
  absl::Status status;
};

using WatchEvent =
    std::variant<v1::WatchJobResponse, v1::StreamStepMetricsResponse, v1::StreamLogsResponse,
                 v1::WatchNodeResponse, StreamLost, StreamRestored, StreamRestarted, StreamEnded>;

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_EVENT_H_

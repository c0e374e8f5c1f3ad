// The streams behind a view of a job: each read by a thread, all into one queue.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_STREAMS_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_STREAMS_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/connection/connection.h"
#include "client/watch/event_queue.h"

namespace megatrain::client {

class WatchStreams {
 public:
  // Job, as `view` says, step metrics, log and, if wanted, the node of `job` ("jobs/ID"), from
  // their beginnings. Each tells its end by StreamEnded. `connection` and `queue` must outlive
  // this.
  WatchStreams(Connection* connection, const std::string& job, v1::JobView view, bool with_node,
               EventQueue* queue);
  // Ends the streams.
  ~WatchStreams();
  WatchStreams(const WatchStreams&) = delete;
  WatchStreams& operator=(const WatchStreams&) = delete;

 private:
  template <class Response, class Open>
  void Start(WatchStream stream, Open open);

  Connection* const connection_;
  EventQueue* const queue_;
  std::vector<std::function<void()>> stops_;
  std::vector<std::thread> threads_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_STREAMS_H_

// WatchStreams reads the streams of a view of a job into one queue. Each stream has a thread of its
// own.
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
  // Begins to read the events of `job` ("jobs/ID"), its step metrics and its log, each from its
  // beginning and as they grow. `view` says which fields of the job its messages carry. `with_node`
  // adds the states of the node that runs the server. Each stream ends with a StreamEnded. A stream
  // that is lost is opened again only if the server has answered before on `connection`; otherwise
  // it ends with its error. `connection` and `queue` must outlive this.
  WatchStreams(Connection* connection, const std::string& job, v1::JobView view, bool with_node,
               EventQueue* queue);
  // Closes the queue, stops the streams and waits for their threads.
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

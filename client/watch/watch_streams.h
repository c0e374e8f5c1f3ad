// Reads the streams of a view of a job, each on a thread of its own, into one queue.
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
  // Begins to read, each from its beginning: the events of `job` ("jobs/ID") with the job as `view`
  // says, its step metrics, its log and, `with_node`, its node. Each ends with a StreamEnded.
  // `connection` and `queue` must outlive this.
  WatchStreams(Connection* connection, const std::string& job, v1::JobView view, bool with_node,
               EventQueue* queue);
  // Closes the queue, ends the streams and waits for their threads.
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

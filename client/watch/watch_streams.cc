#include "client/watch/watch_streams.h"

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "client/connection/resumable_stream.h"

namespace megatrain::client {

template <class Response, class Open>
void WatchStreams::Start(WatchStream stream, Open open) {
  using Stream = ResumableStream<Response>;
  typename Stream::Callbacks callbacks;
  callbacks.message = [this](Response message) { queue_->Push(std::move(message)); };
  callbacks.lost = [this, stream](const absl::Status& status, absl::Duration pause) {
    queue_->Push(StreamLost{stream, std::string(status.message()), absl::Now() + pause});
  };
  callbacks.restored = [this, stream] { queue_->Push(StreamRestored{stream}); };
  callbacks.restarted = [this, stream] { queue_->Push(StreamRestarted{stream}); };
  const auto resumable = std::make_shared<Stream>(connection_, open, std::move(callbacks));
  stops_.push_back([resumable] { resumable->Stop(); });
  threads_.emplace_back([this, stream, resumable] {
    const absl::Status status = resumable->Run(1);
    queue_->Push(StreamEnded{stream, status});
  });
}

WatchStreams::WatchStreams(Connection* connection, const std::string& job, v1::JobView view,
                           bool with_node, EventQueue* queue)
    : connection_(connection), queue_(queue) {
  Start<v1::WatchJobResponse>(WatchStream::kJob,
                              [connection, job, view](grpc::ClientContext* context, int64_t start) {
                                v1::WatchJobRequest request;
                                request.set_name(job);
                                request.set_view(view);
                                request.set_start_sequence(start);
                                return connection->jobs()->WatchJob(context, request);
                              });
  Start<v1::StreamStepMetricsResponse>(
      WatchStream::kMetrics, [connection, job](grpc::ClientContext* context, int64_t start) {
        v1::StreamStepMetricsRequest request;
        request.set_name(job);
        request.set_start_sequence(start);
        request.set_follow(true);
        return connection->jobs()->StreamStepMetrics(context, request);
      });
  Start<v1::StreamLogsResponse>(WatchStream::kLogs,
                                [connection, job](grpc::ClientContext* context, int64_t start) {
                                  v1::StreamLogsRequest request;
                                  request.set_name(job);
                                  request.set_start_sequence(start);
                                  request.set_follow(true);
                                  return connection->jobs()->StreamLogs(context, request);
                                });
  if (with_node) {
    Start<v1::WatchNodeResponse>(WatchStream::kNode,
                                 [connection](grpc::ClientContext* context, int64_t) {
                                   v1::WatchNodeRequest request;
                                   request.set_name("nodes/local");
                                   return connection->nodes()->WatchNode(context, request);
                                 });
  }
}

WatchStreams::~WatchStreams() {
  queue_->Close();
  for (const auto& stop : stops_) stop();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace megatrain::client

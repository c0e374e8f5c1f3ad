// ResumableStream reads a stream of numbered messages and survives lost connections. After a loss
// it opens the stream again, after growing pauses, at the number after the last message seen.
#ifndef MEGATRAIN_CLIENT_CONNECTION_RESUMABLE_STREAM_H_
#define MEGATRAIN_CLIENT_CONNECTION_RESUMABLE_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/connection/backoff.h"
#include "client/connection/cancellation.h"
#include "client/connection/connection.h"
#include "client/connection/rpc_error.h"
#include "client/connection/stream_position.h"

namespace megatrain::client {

// Thread safety: one thread calls Run; any thread may call Stop.
template <class Response>
class ResumableStream {
 public:
  using Reader = grpc::ClientReader<Response>;
  using Open = std::function<std::unique_ptr<Reader>(grpc::ClientContext*, int64_t start_sequence)>;

  // The thread of Run calls these, each any number of times. All but `message` may be empty. They
  // may call Stop.
  struct Callbacks {
    std::function<void(Response message)> message;
    // The stream broke off with `status`, or could not be opened again. Run opens it again after
    // `pause`, or sooner if the connection was lost and is back.
    std::function<void(const absl::Status& status, absl::Duration pause)> lost;
    // The first message since `lost` has come. It is passed to `message` next. Not called if the
    // stream ends before another message comes.
    std::function<void()> restored;
    // The server's series is shorter than the part already seen, as after a power cut, or does not
    // reach Run's `start_sequence`. The next message is the first of the series.
    std::function<void()> restarted;
  };

  // `connection` must outlive this. `open` opens the stream, with the given context, at the message
  // of the given number. It is called on the thread of Run, each time that the stream is opened.
  ResumableStream(Connection* connection, Open open, Callbacks callbacks)
      : connection_(connection), open_(std::move(open)), callbacks_(std::move(callbacks)) {}

  // Reads the stream to its end, beginning with the message of number `start_sequence` (1 is the
  // first). Returns OK at the end, Cancelled if Stop was called, and otherwise the error, as
  // Connection::Explain gives it. A stream that is lost (IsConnectionLoss) is opened again only if
  // the server has answered before on this connection; otherwise Run returns the error. REQUIRES:
  // called at most once.
  absl::Status Run(int64_t start_sequence) {
    int64_t next = start_sequence;
    bool lost = false;
    bool renewed = false;
    Backoff backoff(std::random_device{}());
    while (true) {
      const Connection::StreamCall call = connection_->NewStream();
      if (!cancellation_.Begin(call.context.get())) return Stopped();
      const std::unique_ptr<Reader> reader = open_(call.context.get(), next);
      Response response;
      while (reader->Read(&response)) {
        connection_->NoteAnswer();
        backoff.Reset();
        renewed = false;
        if (std::exchange(lost, false) && callbacks_.restored) callbacks_.restored();
        next = PositionAfter(response, next);
        callbacks_.message(std::move(response));
        response = Response();
      }
      const grpc::Status end = reader->Finish();
      if (!cancellation_.End()) return Stopped();
      if (end.ok()) return absl::OkStatus();
      const absl::Status error = FromGrpcStatus(end);
      if (next > 1 && ReasonOf(error) == "INVALID_FIELD" &&
          MetadataOf(error, "field") == "start_sequence") {
        next = 1;
        if (callbacks_.restarted) callbacks_.restarted();
        continue;
      }
      if (!renewed && connection_->RenewToken(error, call.token)) {
        renewed = true;
        continue;
      }
      if (!connection_->has_answered() || !IsConnectionLoss(error))
        return connection_->Explain(end);
      const absl::Duration pause = backoff.Next();
      lost = true;
      renewed = false;  // another daemon answers next, perhaps
      if (callbacks_.lost) callbacks_.lost(connection_->Explain(end), pause);
      if (!Pause(pause)) return Stopped();
    }
  }

  // Makes Run return soon, also a Run that begins later. May be called repeatedly.
  void Stop() { cancellation_.Cancel(); }

 private:
  static absl::Status Stopped() { return absl::CancelledError("stopped"); }

  // Returns false if Stop was called.
  bool Pause(absl::Duration pause) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point until = Clock::now() + absl::ToChronoNanoseconds(pause);
    // A server that is there and does not want the stream is not asked again before its time.
    const bool refused = connection_->IsConnected();
    for (absl::Duration left = pause; left > absl::ZeroDuration();
         left = absl::FromChrono(until - Clock::now())) {
      if (!refused && connection_->Connect(std::min(left, kSlice))) break;
      if (!cancellation_.Sleep(refused ? left : absl::ZeroDuration())) return false;
    }
    return cancellation_.Sleep(absl::ZeroDuration());
  }

  // The longest time that Run tries to connect before it looks for Stop again.
  static constexpr absl::Duration kSlice = absl::Milliseconds(100);

  Connection* const connection_;
  const Open open_;
  const Callbacks callbacks_;
  Cancellation cancellation_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_RESUMABLE_STREAM_H_

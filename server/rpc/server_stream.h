// The server's side of a streaming RPC: writes what its source gives, a message at a time, with
// heartbeats in between.
//
// Lifetime: keeps itself until gRPC is done with it. gRPC's callbacks come from any of its threads
// and only wake the pump; all is decided in turns on the pump's thread.
#ifndef MEGATRAIN_SERVER_RPC_SERVER_STREAM_H_
#define MEGATRAIN_SERVER_RPC_SERVER_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "megatrain/v1/error_reason.pb.h"
#include "megatrain/v1/stream.pb.h"
#include "server/jobs/error_reason.h"
#include "server/rpc/authenticator.h"
#include "server/rpc/call_queue.h"
#include "server/rpc/conversion.h"
#include "server/rpc/error_status.h"
#include "server/rpc/stream_pump.h"
#include "server/rpc/stream_source.h"

namespace megatrain {

struct StreamOptions {
  std::chrono::milliseconds heartbeat{10000};
  // A reader that has had all there was gets its next message no sooner than this after the last:
  // steps that are shorter come several to a message, or the newest alone. What is there together,
  // as the events of a pause, is not held up.
  std::chrono::milliseconds pace{50};
};

template <class Message>
class ServerStream final : public grpc::ServerWriteReactor<Message>, public StreamPump::Stream {
 public:
  using Clock = StreamPump::Clock;
  using Source = StreamSource<Message>;

  ServerStream(StreamPump* pump, const StreamOptions& options) : pump_(pump), options_(options) {}

  // Once, before anything else: from now on the stream lives until OnDone. An error means that it
  // is to begin with that error.
  absl::Status Join() {
    self_ = std::static_pointer_cast<ServerStream>(shared_from_this());
    return pump_->Add(self_);
  }

  // Before Begin: asked again once a heartbeat's time; an error ends the stream.
  void SetRecheck(std::function<absl::Status()> recheck) { recheck_ = std::move(recheck); }

  // Once. The stream is fed from `source`, or ended with its error.
  void Begin(absl::StatusOr<std::unique_ptr<Source>> source) {
    source_ = std::move(source);
    begun_ = true;
    pump_->Wake(this);
  }

  // For sources: makes the stream look for news, as long as it is there.
  std::function<void()> Waker() {
    return [pump = pump_, weak = weak_from_this()] {
      if (const std::shared_ptr<StreamPump::Stream> stream = weak.lock()) pump->Wake(stream.get());
    };
  }

 private:
  void OnWriteDone(bool ok) override {
    if (!ok) gone_ = true;
    writing_ = false;
    pump_->Wake(this);
  }
  void OnCancel() override {
    gone_ = true;
    pump_->Wake(this);
  }
  void OnDone() override {
    pump_->Remove(this);
    const std::shared_ptr<ServerStream> last = std::move(self_);
  }

  Clock::time_point Turn(Clock::time_point now, bool stopping) override {
    if (!begun_ || ended_ || writing_) return StreamPump::kNever;
    if (gone_) return End(absl::CancelledError("the caller went away"));
    if (!source_.ok()) return End(source_.status());
    if (stopping) {
      return End(WithReason(absl::UnavailableError("the daemon is stopping"),
                            v1::ErrorReason_Name(v1::STOPPING)));
    }
    if (recheck_ && now >= rechecked_ + options_.heartbeat) {
      rechecked_ = now;
      if (absl::Status status = recheck_(); !status.ok()) return End(std::move(status));
    }
    if (drained_ && now < last_write_ + options_.pace) return last_write_ + options_.pace;
    message_ = Message();  // gives the memory of a large one back, as Clear would not
    const absl::StatusOr<StreamNext> next = (*source_)->Next(&message_);
    if (!next.ok()) return End(next.status());
    switch (*next) {
      case StreamNext::kEnd:
        return End(absl::OkStatus());
      case StreamNext::kMessage:
        return Write(now);
      case StreamNext::kNothing:
        drained_ = true;
        break;
    }
    if (!caught_up_ || now >= last_write_ + options_.heartbeat) {
      caught_up_ = true;
      v1::Heartbeat* const heartbeat = message_.mutable_heartbeat();
      *heartbeat->mutable_time() = ToTimestamp(absl::Now());
      heartbeat->set_next_sequence((*source_)->next_sequence());
      return Write(now);
    }
    return std::min<Clock::time_point>(last_write_ + options_.heartbeat,
                                       now + (*source_)->poll_interval());
  }

  Clock::time_point Write(Clock::time_point now) {
    last_write_ = now;
    drained_ = false;
    writing_ = true;
    this->StartWrite(&message_);
    return StreamPump::kNever;
  }

  Clock::time_point End(absl::Status status) {
    ended_ = true;
    source_ = absl::FailedPreconditionError("ended");  // wakes nobody any more
    this->Finish(ToGrpcStatus(status));
    return StreamPump::kNever;
  }

  StreamPump* const pump_;
  const StreamOptions options_;
  std::shared_ptr<ServerStream> self_;
  std::function<absl::Status()> recheck_;  // may be null

  // Set by other threads before they wake the stream.
  absl::StatusOr<std::unique_ptr<Source>> source_ = absl::UnavailableError("not begun");
  std::atomic<bool> begun_{false};
  std::atomic<bool> writing_{false};
  std::atomic<bool> gone_{false};

  // Of turns alone.
  Message message_;  // being written while writing_
  bool ended_ = false;
  bool caught_up_ = false;  // had all there was at some time
  bool drained_ = false;    // has had all there was since the last write
  Clock::time_point last_write_{};
  Clock::time_point rechecked_{};
};

// Answers a streaming RPC. `open` is absl::StatusOr<std::unique_ptr<StreamSource<Message>>>(const
// Caller&, std::function<void()> wake) and is run on a thread of `queue`.
template <class Message, class Request, class Open>
grpc::ServerWriteReactor<Message>* AnswerWithStream(const Authenticator& authenticator,
                                                    CallQueue* queue, StreamPump* pump,
                                                    const StreamOptions& options,
                                                    grpc::CallbackServerContext* context,
                                                    const Request& request, Open open) {
  const auto stream = std::make_shared<ServerStream<Message>>(pump, options);
  if (const absl::Status joined = stream->Join(); !joined.ok()) {
    stream->Begin(joined);
    return stream.get();
  }
  const absl::StatusOr<Caller> caller = authenticator.Authenticate(*context);
  if (!caller.ok()) {
    stream->Begin(caller.status());
    return stream.get();
  }
  stream->SetRecheck(authenticator.Recheck(*context));
  const absl::Status added =
      queue->Add(request.ByteSizeLong(),
                 [stream, caller = *caller, open = std::move(open)](const absl::Status& status) {
                   if (!status.ok()) {
                     stream->Begin(status);
                   } else {
                     stream->Begin(open(caller, stream->Waker()));
                   }
                 });
  if (!added.ok()) stream->Begin(added);
  return stream.get();
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_SERVER_STREAM_H_

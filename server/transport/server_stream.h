// The server's side of a streaming RPC: writes what its source gives, a message at a time, with
// heartbeats in between.
//
// Lifetime: a stream keeps itself until gRPC has told of all its events. Those happen on the
// CallLoop's thread and only wake the pump; all is decided in turns on the pump's thread.
#ifndef MEGATRAIN_SERVER_TRANSPORT_SERVER_STREAM_H_
#define MEGATRAIN_SERVER_TRANSPORT_SERVER_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "megatrain/v1/error_reason.pb.h"
#include "megatrain/v1/stream.pb.h"
#include "server/api/conversion.h"
#include "server/jobs/error_reason.h"
#include "server/jobs/job.h"
#include "server/transport/call_loop.h"
#include "server/transport/error_status.h"
#include "server/transport/rpc_method.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_pump.h"
#include "server/transport/stream_source.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

// `Service` is the one of WithAsyncMethod_NAME's bases whose RequestNAME is `request_call`.
template <class Service, class Request, class Message>
class StreamMethod final : public RpcMethod {
 public:
  using RequestCall = void (Service::*)(grpc::ServerContext*, Request*,
                                        grpc::ServerAsyncWriter<Message>*, grpc::CompletionQueue*,
                                        grpc::ServerCompletionQueue*, void* tag);
  using Source = StreamSource<Message>;
  using Open = std::function<absl::StatusOr<std::unique_ptr<Source>>(const Caller&, const Request&,
                                                                     std::function<void()> wake)>;

  StreamMethod(const ServiceContext& context, std::string name, Service* service,
               RequestCall request_call, AnswerOn open_on, Open open)
      : context_(context),
        name_(std::move(name)),
        service_(service),
        request_call_(request_call),
        open_on_(open_on),
        open_(std::move(open)) {}

  void Await() override { std::make_shared<Stream>(this)->Await(); }

 private:
  // Those of the API have them; health's do not.
  static constexpr bool kHasHeartbeats = requires(Message message) { message.mutable_heartbeat(); };

  class Stream final : public StreamPump::Stream {
   public:
    using Clock = StreamPump::Clock;

    explicit Stream(StreamMethod* method) : method_(method) { method_->context_.loop->Opened(); }
    ~Stream() override { method_->context_.loop->Closed(); }

    void Await() {
      self_ = std::static_pointer_cast<Stream>(shared_from_this());
      context_.AsyncNotifyWhenDone(done_.tag());
      grpc::ServerCompletionQueue* const queue = method_->context_.loop->queue();
      (method_->service_->*method_->request_call_)(&context_, &request_, &writer_, queue, queue,
                                                   arrived_.tag());
    }

   private:
    void Arrived(bool ok) {
      if (!ok) {  // the server stops; of a call that never was there are no other events
        const std::shared_ptr<Stream> last = std::move(self_);
        return;
      }
      method_->Await();
      const Authenticator* const authenticator = method_->context_.authenticator;
      std::optional<absl::StatusOr<Caller>> caller = authenticator->AuthenticateAtOnce(context_);
      const bool refused = caller.has_value() && !caller->ok();
      // Who is refused takes nobody's place.
      const absl::Status joined = refused ? caller->status() : pump()->Add(self_);
      if (!joined.ok()) {
        End(joined);
        return;
      }
      recheck_ = authenticator->Recheck(context_);
      if (caller.has_value() && method_->open_on_ == AnswerOn::kLoop) return Begin(Open(*caller));
      const absl::Status added = method_->context_.queue->Add(
          request_.ByteSizeLong(),
          [stream = self_, authenticator, caller = std::move(caller)](const absl::Status& status) {
            stream->Begin(status.ok()
                              ? stream->Open(caller.has_value()
                                                 ? *caller
                                                 : authenticator->Authenticate(stream->context_))
                              : status);
          });
      if (!added.ok()) Begin(added);
    }

    absl::StatusOr<std::unique_ptr<Source>> Open(const absl::StatusOr<Caller>& caller) {
      if (!caller.ok()) return caller.status();
      share_.SetCaller(caller->uid, ConnectionOf(&context_));
      if (gone_) return absl::CancelledError("the caller went away before the call was acted on");
      return method_->open_(*caller, request_, Waker());
    }

    // Once. The stream is fed from `source`, or ended with its error.
    void Begin(absl::StatusOr<std::unique_ptr<Source>> source) {
      request_ = Request();  // may be large
      source_ = std::move(source);
      begun_ = true;
      pump()->Wake(this);
    }

    // For sources: makes the stream look for news, as long as it is there.
    std::function<void()> Waker() {
      return [pump = pump(), weak = weak_from_this()] {
        if (const std::shared_ptr<StreamPump::Stream> stream = weak.lock()) {
          pump->Wake(stream.get());
        }
      };
    }

    void Written(bool ok) {
      if (!ok) gone_ = true;
      GiveBackRoom();
      writing_ = false;
      pump()->Wake(this);
    }
    void Finished(bool) { Happened(); }
    void Done(bool) {
      if (context_.IsCancelled()) {
        gone_ = true;
        pump()->Wake(this);
      }
      Happened();
    }
    void Happened() {
      if (--events_left_ > 0) return;
      pump()->Remove(this);
      const std::shared_ptr<Stream> last = std::move(self_);
    }

    Clock::time_point Turn(Clock::time_point now, bool stopping) override {
      if (!begun_ || ended_ || writing_) return StreamPump::kNever;
      if (gone_) return End(absl::CancelledError("the caller went away"));
      if (!source_.ok()) return End(source_.status());
      if (stopping) {
        return End(WithReason(absl::UnavailableError("the daemon is stopping"),
                              v1::ErrorReason_Name(v1::STOPPING)));
      }
      if (refused_) return End(refusal_);
      if (recheck_ && now >= rechecked_ + options().heartbeat) {
        rechecked_ = now;
        Recheck();
      }
      if (drained_ && now < last_write_ + options().pace && !(*source_)->Urgent()) {
        return last_write_ + options().pace;
      }
      const absl::StatusOr<bool> room = TakeRoom();
      if (!room.ok()) return End(room.status());
      if (!*room) return StreamPump::kNever;
      Message message;
      const absl::StatusOr<StreamNext> next = (*source_)->Next(&message);
      if (!next.ok()) return End(next.status());
      switch (*next) {
        case StreamNext::kEnd:
          return End(absl::OkStatus());
        case StreamNext::kMessage:
          return Write(message, now);
        case StreamNext::kNothing:
          drained_ = true;
          break;
      }
      Clock::time_point due = now + (*source_)->poll_interval();
      if constexpr (kHasHeartbeats) {
        if (!caught_up_ || now >= last_write_ + options().heartbeat) {
          caught_up_ = true;
          v1::Heartbeat* const heartbeat = message.mutable_heartbeat();
          *heartbeat->mutable_time() = ToTimestamp(absl::Now());
          heartbeat->set_next_sequence((*source_)->next_sequence());
          return Write(message, now);
        }
        due = std::min<Clock::time_point>(due, last_write_ + options().heartbeat);
      }
      GiveBackRoom();
      return due;
    }

    // Whether there is room for a message. False: the stream is woken when there is.
    absl::StatusOr<bool> TakeRoom() {
      if (room_ == Room::kNone) {
        room_ = Room::kAwaited;
        const auto stream = std::static_pointer_cast<Stream>(shared_from_this());
        const absl::StatusOr<bool> taken = share_.Take(0, [stream] {
          stream->room_ = Room::kTaken;
          stream->pump()->Wake(stream.get());
        });
        if (!taken.ok() || *taken) room_ = taken.ok() ? Room::kTaken : Room::kNone;
        if (!taken.ok()) return taken.status();
      }
      return room_ == Room::kTaken;
    }
    // Room that is still awaited is given back with the stream.
    void GiveBackRoom() {
      if (room_ != Room::kTaken) return;
      share_.Set(0);
      room_ = Room::kNone;
    }

    // On a thread of the queue, for it may wait; what it finds is met in a later turn. It is left
    // out where there is no room for it or the last one still waits.
    void Recheck() {
      if (refused_ || rechecking_.exchange(true)) return;
      const auto stream = std::static_pointer_cast<Stream>(shared_from_this());
      const absl::Status added =
          method_->context_.queue->Add(0, [stream](const absl::Status& stopping) {
            const absl::Status status = stopping.ok() ? stream->recheck_() : absl::OkStatus();
            if (!status.ok()) {
              stream->refusal_ = status;
              stream->refused_ = true;
              stream->pump()->Wake(stream.get());
            }
            stream->rechecking_ = false;
          });
      if (!added.ok()) rechecking_ = false;
    }

    Clock::time_point Write(const Message& message, Clock::time_point now) {
      last_write_ = now;
      drained_ = false;
      writing_ = true;
      share_.Set(message.ByteSizeLong());
      writer_.Write(message, written_.tag());  // what it sends it has made by its end
      return StreamPump::kNever;
    }

    Clock::time_point End(absl::Status status) {
      ended_ = true;
      GiveBackRoom();
      source_ = absl::FailedPreconditionError("ended");  // wakes nobody any more
      const grpc::Status told = ToGrpcStatus(status);
      method_->context_.Observe(method_->name_, told);
      writer_.Finish(told, finished_.tag());
      return StreamPump::kNever;
    }

    StreamPump* pump() const { return method_->context_.pump; }
    const StreamOptions& options() const { return method_->context_.streams; }

    StreamMethod* const method_;
    grpc::ServerContext context_;
    Request request_;
    grpc::ServerAsyncWriter<Message> writer_{&context_};
    CallEventOf<Stream, &Stream::Arrived> arrived_{this};
    CallEventOf<Stream, &Stream::Written> written_{this};
    CallEventOf<Stream, &Stream::Finished> finished_{this};
    CallEventOf<Stream, &Stream::Done> done_{this};
    int events_left_ = 2;  // after Arrived, writes aside
    std::shared_ptr<Stream> self_;

    // Of the message that is written, or about to be made.
    enum class Room { kNone, kAwaited, kTaken };
    AnswerShare share_{method_->context_.answers};
    std::atomic<Room> room_{Room::kNone};

    // Set by other threads before they wake the stream.
    std::function<absl::Status()> recheck_;  // asked once a heartbeat's time; may be null
    absl::StatusOr<std::unique_ptr<Source>> source_ = absl::UnavailableError("not begun");
    std::atomic<bool> begun_{false};
    std::atomic<bool> writing_{false};
    std::atomic<bool> gone_{false};
    std::atomic<bool> rechecking_{false};
    absl::Status refusal_;
    std::atomic<bool> refused_{false};

    // Of turns alone.
    bool ended_ = false;
    bool caught_up_ = false;  // had all there was at some time
    bool drained_ = false;    // has had all there was since the last write
    Clock::time_point last_write_{};
    Clock::time_point rechecked_{};
  };

  const ServiceContext context_;
  const std::string name_;
  Service* const service_;
  const RequestCall request_call_;
  const AnswerOn open_on_;
  const Open open_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_SERVER_STREAM_H_

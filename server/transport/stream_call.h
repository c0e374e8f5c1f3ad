// StreamCall is one call of a server-streaming RPC. It writes the messages of its source one at a
// time. It writes a heartbeat when it has first sent all there is, and whenever there is no news
// for StreamOptions::heartbeat.
//
// A stream keeps itself alive until gRPC is done with it (OnDone). Start authenticates the caller,
// and may open the source or refuse the call, on gRPC's thread. What may wait is left to the
// CallQueue. After that gRPC's threads note what happened, give back room and wake the stream. Its
// turns (TurnScheduler) do the rest.
#ifndef MEGATRAIN_SERVER_TRANSPORT_STREAM_CALL_H_
#define MEGATRAIN_SERVER_TRANSPORT_STREAM_CALL_H_

#include <google/protobuf/util/time_util.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

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
#include "megatrain/v1/stream.pb.h"
#include "server/base/error_reason.h"
#include "server/identity/caller.h"
#include "server/transport/error_status.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_source.h"
#include "server/transport/turn_scheduler.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

// REQUIRES: `Message` has a v1::Heartbeat `heartbeat`.
template <class Request, class Message>
class StreamCall final : public grpc::ServerWriteReactor<Message>, public TurnScheduler::Stream {
 public:
  using Clock = TurnScheduler::Clock;
  using Opened = OpenedSource<Message>;
  // Makes the source. Any thread may call `wake` (StreamSource), which does nothing once the stream
  // is destroyed.
  using Open = std::function<Opened(const Caller&, std::function<void()> wake)>;

  // Begins the call, and returns the reactor for gRPC. `method` is "/PACKAGE.SERVICE/RPC", as
  // CallGate::Observe takes it. `open` is called once at most, on the thread that `open_on` says.
  // `services` must outlive the call. `context` and `request` are gRPC's and live as long as the
  // call. StreamOptions and AnswerOn are in service_context.h.
  //
  // The stream ends with OK after StreamNext::kEnd, and with an error of `open` or of its source.
  // It also ends with the errors of CallGate, TurnScheduler::Add, CallQueue::Add and
  // AnswerShare::Take, with Unavailable (STOPPING) when the daemon stops, and with Cancelled if the
  // caller has gone or the deadline has passed.
  static StreamReactor<Message>* Start(const ServiceContext& services, const StreamOptions& options,
                                       std::string method, AnswerOn open_on, Open open,
                                       CallContext* context, const Request* request) {
    const std::shared_ptr<StreamCall> call(new StreamCall(
        services, options, std::move(method), open_on, std::move(open), context, request));
    call->self_ = call;
    call->Join();
    return call.get();
  }

  // Called by the TurnScheduler alone.
  Clock::time_point Turn(Clock::time_point now, bool stopping) override {
    if (!begun_ || !bound_ || ended_ || writing_) return TurnScheduler::kNever;
    if (gone_) return End(absl::CancelledError("the caller went away"));
    if (!source_.ok()) return End(source_.status());
    if (stopping) {
      return End(DaemonStopping());
    }
    if (refused_) return End(refusal_);
    if (recheck_ && now >= rechecked_ + options_.heartbeat) {
      rechecked_ = now;
      Recheck();
    }
    if (drained_ && now < last_write_ + options_.pace && !(*source_)->Urgent()) {
      return last_write_ + options_.pace;
    }
    const absl::StatusOr<bool> room = TakeRoom();
    if (!room.ok()) return End(room.status());
    if (!*room) return TurnScheduler::kNever;
    message_.Clear();
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
      *heartbeat->mutable_time() = google::protobuf::util::TimeUtil::GetCurrentTime();
      heartbeat->set_next_sequence((*source_)->next_sequence());
      return Write(now);
    }
    GiveBackRoom();
    return std::min<Clock::time_point>(now + (*source_)->poll_interval(),
                                       last_write_ + options_.heartbeat);
  }

 private:
  StreamCall(const ServiceContext& services, const StreamOptions& options, std::string method,
             AnswerOn open_on, Open open, CallContext* context, const Request* request)
      : TurnScheduler::Stream(services.turns),
        services_(services),
        options_(options),
        method_(std::move(method)),
        open_on_(open_on),
        open_(std::move(open)),
        context_(context),
        request_(request) {}

  void OnSendInitialMetadataDone(bool) override {
    bound_ = true;
    services_.turns->Wake(this);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) gone_ = true;
    GiveBackRoom();
    writing_ = false;
    services_.turns->Wake(this);
  }
  void OnCancel() override {
    gone_ = true;
    services_.turns->Wake(this);
  }
  void OnDone() override {
    services_.turns->Remove(this);
    const std::shared_ptr<StreamCall> last = std::move(self_);
  }

  void Join() {
    const CallGate& gate = *services_.gate;
    std::optional<absl::StatusOr<Caller>> caller = gate.AuthenticateAtOnce(*context_);
    const bool refused = caller.has_value() && !caller->ok();
    // A refused caller takes nobody's place.
    const absl::Status joined = refused ? caller->status() : services_.turns->Add(self_);
    if (!joined.ok()) {
      End(joined);
      return;
    }
    this->StartSendInitialMetadata();
    recheck_ = gate.Recheck(*context_);
    if (caller.has_value() && open_on_ == AnswerOn::kCallback) return Feed(OpenSource(*caller));
    const absl::Status added = services_.queue->Add(
        request_->ByteSizeLong(),
        [stream = self_, &gate, caller = std::move(caller)](const absl::Status& status) {
          stream->Feed(status.ok() ? stream->OpenSource(caller.has_value()
                                                            ? *caller
                                                            : gate.Authenticate(*stream->context_))
                                   : status);
        });
    if (!added.ok()) Feed(added);
  }

  Opened OpenSource(const absl::StatusOr<Caller>& caller) {
    if (!caller.ok()) return caller.status();
    share_.SetCaller(caller->uid, ConnectionOf(context_));
    if (gone_) return absl::CancelledError("the caller went away before the call was acted on");
    return open_(*caller, Waker());
  }

  // Begins to feed the stream from `source`, or ends it with the error. Called once.
  void Feed(Opened source) {
    source_ = std::move(source);
    begun_ = true;
    services_.turns->Wake(this);
  }

  // Returns the function with which the source wakes the stream. It does nothing once the stream is
  // destroyed.
  std::function<void()> Waker() {
    return [turns = services_.turns, weak = weak_from_this()] {
      if (const std::shared_ptr<TurnScheduler::Stream> stream = weak.lock()) {
        turns->Wake(stream.get());
      }
    };
  }

  // Returns true if there is room for a message. If it returns false, the stream is woken when
  // there is.
  absl::StatusOr<bool> TakeRoom() {
    if (room_ == Room::kNone) {
      room_ = Room::kAwaited;
      const auto stream = std::static_pointer_cast<StreamCall>(shared_from_this());
      const absl::StatusOr<bool> taken = share_.Take(0, [stream] {
        stream->room_ = Room::kTaken;
        stream->services_.turns->Wake(stream.get());
      });
      if (!taken.ok() || *taken) room_ = taken.ok() ? Room::kTaken : Room::kNone;
      if (!taken.ok()) return taken.status();
    }
    return room_ == Room::kTaken;
  }
  // Room that is still awaited is given back with the stream.
  void GiveBackRoom() {
    if (room_ != Room::kTaken) return;
    share_.SetBytes(0);
    room_ = Room::kNone;
  }

  // Rechecks the caller on a thread of the queue, since that may wait. A later turn meets a
  // refusal. The check is left out if the queue is full or the last check has not ended.
  void Recheck() {
    if (refused_ || rechecking_.exchange(true)) return;
    const auto stream = std::static_pointer_cast<StreamCall>(shared_from_this());
    const absl::Status added = services_.queue->Add(0, [stream](const absl::Status& stopping) {
      const absl::Status status = stopping.ok() ? stream->recheck_() : absl::OkStatus();
      if (!status.ok()) {
        stream->refusal_ = status;
        stream->refused_ = true;
        stream->services_.turns->Wake(stream.get());
      }
      stream->rechecking_ = false;
    });
    if (!added.ok()) rechecking_ = false;
  }

  Clock::time_point Write(Clock::time_point now) {
    last_write_ = now;
    drained_ = false;
    writing_ = true;
    share_.SetBytes(message_.ByteSizeLong());
    this->StartWrite(&message_);
    message_ = Message();  // gRPC has its bytes: of a call that is bound they are made at once
    return TurnScheduler::kNever;
  }

  Clock::time_point End(absl::Status status) {
    ended_ = true;
    GiveBackRoom();
    source_ = absl::FailedPreconditionError("ended");  // wakes nobody any more
    const grpc::Status told = ToGrpcStatus(status);
    services_.gate->Observe(method_, told);
    this->Finish(told);
    return TurnScheduler::kNever;
  }

  const ServiceContext& services_;
  const StreamOptions options_;
  const std::string method_;
  const AnswerOn open_on_;
  const Open open_;
  CallContext* const context_;
  const Request* const request_;
  std::shared_ptr<StreamCall> self_;

  // The room for the message that is written, or is about to be made.
  enum class Room { kNone, kAwaited, kTaken };
  Message message_;
  AnswerShare share_{services_.answers};
  std::atomic<Room> room_{Room::kNone};

  // Set by other threads before they wake the stream.
  std::atomic<bool> bound_{false};         // gRPC takes messages at once
  std::function<absl::Status()> recheck_;  // asked once a heartbeat's time; may be null
  Opened source_ = absl::UnavailableError("not begun");
  std::atomic<bool> begun_{false};
  std::atomic<bool> writing_{false};
  std::atomic<bool> gone_{false};
  std::atomic<bool> rechecking_{false};
  absl::Status refusal_;
  std::atomic<bool> refused_{false};

  // Used only in turns, or by Start if the call is refused.
  bool ended_ = false;
  bool caught_up_ = false;  // had all there was at some time
  bool drained_ = false;    // has had all there was since the last write
  Clock::time_point last_write_{};
  Clock::time_point rechecked_{};
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_STREAM_CALL_H_

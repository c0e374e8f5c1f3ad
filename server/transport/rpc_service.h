// RpcService is a base class for gRPC services of the callback API. It turns plain functions into
// RPCs. The functions know requests, responses and callers, but not gRPC.
#ifndef MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_
#define MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/identity/caller.h"
#include "server/transport/error_status.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_call.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

// UnaryCall is one call of a unary RPC. It learns from the gate who calls, runs a plain function
// that makes the response, and answers with its Status.
//
// A call deletes itself when gRPC is done with it (OnDone): the answer has left the process, or the
// call was cut off.
template <class Request, class Response>
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  // Fills in the response of the call that it was made for. With an error the response is dropped.
  using Answer = std::function<absl::Status(const Caller&)>;

  // Begins the call. `answer` runs once, on the thread that `answer_on` says. It does not run if
  // the gate, the queue or UnsentAnswers refuses the call, or if the caller has gone or the
  // deadline has passed by then. `services` must outlive the call. `context`, `request` and
  // `response` are gRPC's and live as long as the call.
  UnaryCall(const ServiceContext& services, std::string method, AnswerOn answer_on, Answer answer,
            CallContext* context, const Request* request, Response* response)
      : services_(services),
        method_(std::move(method)),
        answer_on_(answer_on),
        answer_(std::move(answer)),
        context_(context),
        request_(request),
        response_(response),
        caller_(services.gate->AuthenticateAtOnce(*context)) {
    const bool refused = caller_.has_value() && !caller_->ok();
    if (refused || (caller_.has_value() && answer_on_ == AnswerOn::kCallback)) {
      Admit();
      return;
    }
    // Room for an answer is taken when a thread of the queue runs the call. Calls that wait in the
    // queue would otherwise keep it from calls that are answered at once.
    Enqueue([this] {
      if (!caller_.has_value()) caller_ = services_.gate->Authenticate(*context_);
      Admit();
    });
  }

 private:
  // gRPC keeps the response message until the answer has left, so that an answer that waits is held
  // twice: as a message and as bytes. A longer answer is sent in two parts, of which the first
  // tells when the call has begun to be answered. Its message is freed as soon as Finish has turned
  // it into bytes.
  static constexpr size_t kHeldTwiceBytesMax = size_t{64} << 10;

  void OnSendInitialMetadataDone(bool) override {
    Finish(grpc::Status::OK);
    *response_ = Response();  // gRPC keeps the call until this returns
  }
  void OnDone() override { delete this; }

  // Continues when it is known who calls. Answers when there is room for the answer.
  void Admit() {
    if (!caller_->ok()) return End(caller_->status());
    share_.SetCaller((*caller_)->uid, ConnectionOf(context_));
    const absl::StatusOr<bool> room = share_.Take(request_->ByteSizeLong(), [this] { GoOn(); });
    if (!room.ok()) return End(room.status());
    if (*room) End(Act());
  }

  // Continues when there is room. Called on any thread.
  void GoOn() {
    if (answer_on_ == AnswerOn::kCallback) return End(Act());
    Enqueue([this] { End(Act()); });
  }

  // Runs `step` on a thread of the queue, or answers with the reason why not.
  void Enqueue(std::function<void()> step) {
    const absl::Status added = services_.queue->Add(
        request_->ByteSizeLong(), [this, step = std::move(step)](const absl::Status& status) {
          status.ok() ? step() : End(status);
        });
    if (!added.ok()) End(added);
  }

  // A call whose client has gone or whose deadline has passed by now is not acted on.
  absl::Status Act() {
    if (context_->IsCancelled()) {
      return context_->deadline() <= std::chrono::system_clock::now()
                 ? absl::DeadlineExceededError("the deadline passed before the call was acted on")
                 : absl::CancelledError("the caller went away before the call was acted on");
    }
    return answer_(**caller_);
  }

  void End(const absl::Status& status) {
    *const_cast<Request*>(request_) = Request();
    if (!status.ok()) *response_ = Response();
    const grpc::Status told = ToGrpcStatus(status);
    services_.gate->Observe(method_, told);
    const size_t bytes = response_->ByteSizeLong();
    const bool held_twice = bytes <= kHeldTwiceBytesMax;
    share_.SetBytes(held_twice ? 2 * bytes : bytes);
    // The call may be gone when these return.
    held_twice ? Finish(told) : StartSendInitialMetadata();
  }

  const ServiceContext& services_;
  const std::string method_;
  const AnswerOn answer_on_;
  const Answer answer_;
  CallContext* const context_;
  const Request* const request_;
  Response* const response_;
  AnswerShare share_{services_.answers};
  std::optional<absl::StatusOr<Caller>> caller_;
};

// `Api` is the generated class of the service. A class that derives from this one overrides the
// virtual methods of Api::CallbackService with calls of Unary and Stream:
//   UnaryReactor* GetNode(CallContext* context, const v1::GetNodeRequest* request,
//                         v1::Node* response) override {
//     return Unary("GetNode", AnswerOn::kQueue, context, request, response,
//                  [=, this](const Caller&) { return Fill(request->name(), response); });
//   }
template <class Api>
class RpcService : public Api::CallbackService {
 protected:
  // The targets of the pointers in `services` must outlive the service.
  explicit RpcService(const ServiceContext& services) : services_(services) {}

  // Answers a call of the RPC `name` by calling `answer` as UnaryCall says, by several threads at
  // once. Returns the reactor that the overriding method returns to gRPC; it deletes itself.
  template <class Request, class Response>
  UnaryReactor* Unary(const char* name, AnswerOn answer_on, CallContext* context,
                      const Request* request, Response* response,
                      typename UnaryCall<Request, Response>::Answer answer) {
    return new UnaryCall<Request, Response>(services_, FullName(name), answer_on, std::move(answer),
                                            context, request, response);
  }

  // Answers a call of the RPC `name` with the messages of the source that `open` returns, or with
  // the error of `open`. `open` is called on the thread that `open_on` says. The source may call
  // `wake` as StreamSource says. Returns the reactor that the overriding method returns to gRPC; it
  // deletes itself.
  template <class Message, class Request>
  StreamReactor<Message>* Stream(const char* name, AnswerOn open_on, CallContext* context,
                                 const Request* request, const StreamOptions& options,
                                 typename StreamCall<Request, Message>::Open open) {
    return StreamCall<Request, Message>::Start(services_, options, FullName(name), open_on,
                                               std::move(open), context, request);
  }

  const ServiceContext services_;

 private:
  static std::string FullName(const char* name) {
    return absl::StrCat("/", Api::service_full_name(), "/", name);
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_

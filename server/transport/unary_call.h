// How a unary RPC is answered: who calls is told, a plain function from request to response is run,
// and its Status becomes gRPC's.
#ifndef MEGATRAIN_SERVER_TRANSPORT_UNARY_CALL_H_
#define MEGATRAIN_SERVER_TRANSPORT_UNARY_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/transport/call_loop.h"
#include "server/transport/error_status.h"
#include "server/transport/rpc_method.h"
#include "server/transport/service_context.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

// `Service` is the one of WithAsyncMethod_NAME's bases whose RequestNAME is
// `request_call`.
template <class Service, class Request, class Response>
class UnaryMethod final : public RpcMethod {
 public:
  using RequestCall = void (Service::*)(grpc::ServerContext*, Request*,
                                        grpc::ServerAsyncResponseWriter<Response>*,
                                        grpc::CompletionQueue*, grpc::ServerCompletionQueue*,
                                        void* tag);
  using Answer = std::function<absl::Status(const Caller&, const Request&, Response*)>;

  UnaryMethod(const ServiceContext& context, std::string name, Service* service,
              RequestCall request_call, AnswerOn answer_on, Answer answer)
      : context_(context),
        name_(std::move(name)),
        service_(service),
        request_call_(request_call),
        answer_on_(answer_on),
        answer_(std::move(answer)) {}

  void Await() override { new Call(this); }  // deletes itself

 private:
  // Waits for a caller, answers it, and is gone when gRPC has told of all its events.
  class Call {
   public:
    explicit Call(UnaryMethod* method) : method_(method) {
      method_->context_.loop->Opened();
      if (method_->answer_on_ == AnswerOn::kQueue) {
        context_.AsyncNotifyWhenDone(done_.tag());
        ++events_left_;
      }
      grpc::ServerCompletionQueue* const queue = method_->context_.loop->queue();
      (method_->service_->*method_->request_call_)(&context_, &request_, &responder_, queue, queue,
                                                   arrived_.tag());
    }
    ~Call() { method_->context_.loop->Closed(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    void Arrived(bool ok) {
      if (!ok) {  // the server stops; of a call that never was there are no other events
        delete this;
        return;
      }
      method_->Await();
      caller_ = method_->context_.authenticator->AuthenticateAtOnce(context_);
      const bool refused = caller_.has_value() && !caller_->ok();
      if (refused || (caller_.has_value() && method_->answer_on_ == AnswerOn::kLoop)) {
        return Admit();
      }
      // Room for an answer is taken behind the queue: those that wait there for slow ones would
      // keep it from calls that are answered at once.
      Enqueue([this] {
        if (!caller_.has_value()) {
          caller_ = method_->context_.authenticator->Authenticate(context_);
        }
        Admit();
      });
    }

    // It is known who calls. Answers when there is room for the answer.
    void Admit() {
      if (!caller_->ok()) return Finish(caller_->status());
      share_.SetCaller((*caller_)->uid, ConnectionOf(&context_));
      const absl::StatusOr<bool> room = share_.Take(request_.ByteSizeLong(), [this] { GoOn(); });
      if (!room.ok()) return Finish(room.status());
      if (*room) Finish(Answer());
    }

    // There is room now; told on any thread.
    void GoOn() {
      if (method_->answer_on_ == AnswerOn::kLoop) return Finish(Answer());
      Enqueue([this] { Finish(Answer()); });
    }

    // Runs `step` on a thread of the queue, or answers with the reason why not.
    void Enqueue(std::function<void()> step) {
      const absl::Status added = method_->context_.queue->Add(
          request_.ByteSizeLong(), [this, step = std::move(step)](const absl::Status& status) {
            status.ok() ? step() : Finish(status);
          });
      if (!added.ok()) Finish(added);
    }

    // A call whose client has gone or whose deadline has passed by now is not acted on.
    absl::Status Answer() {
      if (gone_) {
        return context_.deadline() <= std::chrono::system_clock::now()
                   ? absl::DeadlineExceededError("the deadline passed before the call was acted on")
                   : absl::CancelledError("the caller went away before the call was acted on");
      }
      return method_->answer_(**caller_, request_, &response_);
    }

    void Finish(const absl::Status& status) {
      // A caller who does not read the answer is given no more of the daemon's memory than gRPC
      // needs for it.
      request_ = Request();
      const Response response = std::move(response_);
      const grpc::Status told = ToGrpcStatus(status);
      method_->context_.Observe(method_->name_, told);
      share_.Set(status.ok() ? response.ByteSizeLong() : 0);
      responder_.Finish(response, told, finished_.tag());  // the call may be gone when it returns
    }

    void Finished(bool) {
      // What waits for a disk is rare, and someone waits for what comes of it.
      if (method_->answer_on_ == AnswerOn::kLoop) method_->context_.loop->Answered();
      share_.Set(0);
      Happened();
    }
    void Done(bool) {
      gone_ = context_.IsCancelled();
      Happened();
    }
    void Happened() {
      if (--events_left_ == 0) delete this;
    }

    UnaryMethod* const method_;
    grpc::ServerContext context_;
    Request request_;
    Response response_;
    std::optional<absl::StatusOr<Caller>> caller_;
    AnswerShare share_{method_->context_.answers};
    grpc::ServerAsyncResponseWriter<Response> responder_{&context_};
    CallEventOf<Call, &Call::Arrived> arrived_{this};
    CallEventOf<Call, &Call::Finished> finished_{this};
    CallEventOf<Call, &Call::Done> done_{this};
    int events_left_ = 1;  // after Arrived
    std::atomic<bool> gone_{false};
  };

  const ServiceContext context_;
  const std::string name_;
  Service* const service_;
  const RequestCall request_call_;
  const AnswerOn answer_on_;
  const Answer answer_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_UNARY_CALL_H_

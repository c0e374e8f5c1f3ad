#include "server/transport/call_gate.h"

#include <google/protobuf/message.h>
#include <grpc/grpc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/error_reason.h"
#include "server/transport/error_status.h"

namespace megatrain {

using grpc::experimental::InterceptionHookPoints;

struct CallGate::StockMethod {
  std::string_view name;
  const char* calls;  // what its calls are called in messages
  bool authenticated_on_tcp = false;
  size_t calls_max = 0;  // 0: any number
  // Of requests in a stream, each answered by a message.
  size_t request_bytes_max = 0;
};

const CallGate::StockMethod CallGate::kStockMethods[] = {
    {.name = "/grpc.health.v1.Health/Check", .calls = "checks of health"},
    {.name = "/grpc.health.v1.Health/Watch",
     .calls = "watches of health",
     .calls_max = kHealthWatchesMax},
    {.name = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     .calls = "calls of reflection",
     .authenticated_on_tcp = true,
     .calls_max = kReflectionCallsMax,
     .request_bytes_max = kReflectionRequestBytesMax}};

// Lives as long as its call.
class CallGate::StockCall final : public grpc::experimental::Interceptor {
 public:
  StockCall(CallGate* gate, const StockMethod* method, grpc::ServerContextBase* context)
      : gate_(gate), method_(method), context_(context) {}
  ~StockCall() override { gate_->Leave(this); }

  const StockMethod& method() const { return *method_; }
  const grpc::ServerContextBase& context() const { return *context_; }

  // The caller gets the status's code and message, if it has not been answered yet.
  void Cancel(const absl::Status& status) {
    const std::string message(status.message());
    grpc_call_cancel_with_status(context_->c_call(), static_cast<grpc_status_code>(status.code()),
                                 message.c_str(), nullptr);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      // Waits for the account database only where the call has a thread of its own (reflection).
      Check(gate_->Admit(this));
    }
    if (method_->request_bytes_max > 0 &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      CheckRequest(static_cast<google::protobuf::Message*>(methods->GetRecvMessage()));
    }
    if (method_->request_bytes_max > 0 &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      // gRPC 1.51 adds the answer to the next request to this one: it would grow without end.
      const void* const answer = methods->GetSendMessage();
      methods->GetSerializedSendMessage();
      static_cast<google::protobuf::Message*>(const_cast<void*>(answer))->Clear();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // gRPC's handlers end cancelled calls with codes of their own.
      gate_->Observe(method_->name, !refusal_.ok()            ? ToGrpcStatus(refusal_)
                                    : context_->IsCancelled() ? grpc::Status::CANCELLED
                                                              : methods->GetSendStatus());
    }
    methods->Proceed();
  }

 private:
  void Check(absl::Status status) {
    if (status.ok() || !refusal_.ok()) return;
    refusal_ = std::move(status);
    Cancel(refusal_);
  }

  // Null: there is none any more.
  void CheckRequest(google::protobuf::Message* request) {
    if (request == nullptr || request->ByteSizeLong() <= method_->request_bytes_max) return;
    request->Clear();  // what its handler then answers reaches nobody
    Check(InvalidField("message_request", absl::StrCat("a request has at most ",
                                                       method_->request_bytes_max, " bytes")));
  }

  CallGate* const gate_;
  const StockMethod* const method_;
  grpc::ServerContextBase* const context_;
  absl::Status refusal_;
};

class CallGate::Interceptors final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Interceptors(CallGate* gate) : gate_(gate) {}

  // None for the API's calls, which would pay for it.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    for (const StockMethod& method : kStockMethods) {
      if (method.name == info->method()) {
        return new StockCall(gate_, &method, info->server_context());
      }
    }
    return nullptr;
  }

 private:
  CallGate* const gate_;
};

CallGate::CallGate(const Authenticator* authenticator, RequestObserver request_observer,
                   RefusalObserver refusal_observer)
    : authenticator_(authenticator),
      request_observer_(std::move(request_observer)),
      refusal_observer_(std::move(refusal_observer)) {}

absl::StatusOr<Caller> CallGate::Authenticate(const grpc::ServerContextBase& context) const {
  absl::StatusOr<Caller> caller = authenticator_->Authenticate(context);
  if (!caller.ok()) Tell(caller.status(), context.peer());
  return caller;
}

std::optional<absl::StatusOr<Caller>> CallGate::AuthenticateAtOnce(
    const grpc::ServerContextBase& context) const {
  std::optional<absl::StatusOr<Caller>> caller = authenticator_->AuthenticateAtOnce(context);
  if (caller.has_value() && !caller->ok()) Tell(caller->status(), context.peer());
  return caller;
}

std::function<absl::Status()> CallGate::Recheck(const grpc::ServerContextBase& context) const {
  std::function<absl::Status()> recheck = authenticator_->Recheck(context);
  if (recheck == nullptr) return nullptr;
  // An error ends the stream, and so is told once.
  return [this, recheck = std::move(recheck), peer = context.peer()] {
    absl::Status status = recheck();
    if (!status.ok()) Tell(status, peer);
    return status;
  };
}

void CallGate::Tell(const absl::Status& refusal, std::string peer) const {
  if (!refusal_observer_) return;
  refusal_observer_({Refusal::Kind::kCaller, ReasonName(refusal), std::move(peer),
                     std::string(refusal.message())});
}

void CallGate::Observe(std::string_view method, const grpc::Status& status) const {
  if (request_observer_) request_observer_(method, status.error_code());
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CallGate::NewInterceptors() {
  return std::make_unique<Interceptors>(this);
}

absl::Status CallGate::Admit(StockCall* call) {
  const StockMethod& method = call->method();
  std::optional<absl::StatusOr<Caller>> caller = Caller();
  if (method.authenticated_on_tcp && !absl::StartsWith(call->context().peer(), "unix")) {
    caller = AuthenticateAtOnce(call->context());
    if (caller.has_value() && !caller->ok()) return caller->status();
  }
  // Who is refused takes nobody's place; who waits for the account database has one.
  if (method.calls_max > 0) {
    MutexLock lock(&mutex_);
    if (stopping_) return DaemonStopping();
    const auto same = [&method](const StockCall* other) { return &other->method() == &method; };
    if (std::count_if(open_.begin(), open_.end(), same) >=
        static_cast<ptrdiff_t>(method.calls_max)) {
      return WithReason(
          absl::ResourceExhaustedError(absl::StrCat("there are ", method.calls_max, " ",
                                                    method.calls, ", as many as may be")),
          v1::LIMIT_REACHED);
    }
    open_.insert(call);
  }
  return caller.has_value() ? absl::OkStatus() : Authenticate(call->context()).status();
}

void CallGate::Leave(StockCall* call) {
  MutexLock lock(&mutex_);
  open_.erase(call);
}

void CallGate::Stop() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  for (StockCall* const call : open_) call->Cancel(DaemonStopping());
}

}  // namespace megatrain

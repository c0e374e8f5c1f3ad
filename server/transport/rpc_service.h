// A gRPC service whose RPCs are plain methods: what answers knows requests, responses and callers,
// not gRPC.
#ifndef MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_
#define MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/jobs/job.h"
#include "server/transport/rpc_method.h"
#include "server/transport/server_stream.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_source.h"
#include "server/transport/unary_call.h"

namespace megatrain {

// `Self` is the class that derives from this one and has the methods, `Api` the generated class of
// the service.
template <class Self, class Api>
class RpcService {
 public:
  RpcService(const RpcService&) = delete;
  RpcService& operator=(const RpcService&) = delete;

  // For grpc::ServerBuilder::RegisterService.
  grpc::Service* service() { return &service_; }

  // Begins to answer. Once, when the server has been started; it must end before this object.
  void Serve() {
    for (const std::unique_ptr<RpcMethod>& method : methods_) method->Await();
  }

 protected:
  template <class Service, class Request, class Responder>
  using RequestCall = void (Service::*)(grpc::ServerContext*, Request*, Responder*,
                                        grpc::CompletionQueue*, grpc::ServerCompletionQueue*,
                                        void*);

  explicit RpcService(const ServiceContext& context) : context_(context) {}
  ~RpcService() = default;

  // `name` is the RPC's, `request_call` what the generated class takes calls of it with.
  template <class Service, class Request, class Response>
  void Unary(const char* name,
             RequestCall<Service, Request, grpc::ServerAsyncResponseWriter<Response>> request_call,
             AnswerOn answer_on,
             absl::Status (Self::*answer)(const Caller&, const Request&, Response*)) {
    Add(std::make_unique<UnaryMethod<Service, Request, Response>>(
        context_, FullName(name), &service_, request_call, answer_on,
        [self = static_cast<Self*>(this), answer](const Caller& caller, const Request& request,
                                                  Response* response) {
          return (self->*answer)(caller, request, response);
        }));
  }

  template <class Service, class Request, class Message>
  void Stream(const char* name,
              RequestCall<Service, Request, grpc::ServerAsyncWriter<Message>> request_call,
              AnswerOn open_on,
              absl::StatusOr<std::unique_ptr<StreamSource<Message>>> (Self::*open)(
                  const Caller&, const Request&, std::function<void()> wake),
              const StreamOptions& options) {
    ServiceContext context = context_;
    context.streams = options;
    Add(std::make_unique<StreamMethod<Service, Request, Message>>(
        context, FullName(name), &service_, request_call, open_on,
        [self = static_cast<Self*>(this), open](const Caller& caller, const Request& request,
                                                std::function<void()> wake) {
          return (self->*open)(caller, request, std::move(wake));
        }));
  }
  template <class Service, class Request, class Message>
  void Stream(const char* name,
              RequestCall<Service, Request, grpc::ServerAsyncWriter<Message>> request_call,
              AnswerOn open_on,
              absl::StatusOr<std::unique_ptr<StreamSource<Message>>> (Self::*open)(
                  const Caller&, const Request&, std::function<void()> wake)) {
    Stream(name, request_call, open_on, open, context_.streams);
  }

  void Add(std::unique_ptr<RpcMethod> method) { methods_.push_back(std::move(method)); }
  static std::string FullName(const char* name) {
    return absl::StrCat("/", Api::service_full_name(), "/", name);
  }

  const ServiceContext context_;
  typename Api::AsyncService service_;

 private:
  RpcMethods methods_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_

// RpcService is a base class for gRPC services of the callback API. It makes RPCs of plain methods,
// which know requests, responses and callers, and nothing of gRPC.
#ifndef MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_
#define MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/identity/caller.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_call.h"
#include "server/transport/stream_source.h"
#include "server/transport/unary_call.h"

namespace megatrain {

// `Self` is the class that derives from this one, `Api` the generated class of the service. Self
// overrides the virtual methods of Api::CallbackService with calls of Unary and Stream.
template <class Self, class Api>
class RpcService : public Api::CallbackService {
 protected:
  // The targets of the pointers in `services` must outlive the service.
  explicit RpcService(const ServiceContext& services) : services_(services) {}

  // Answers a call of the RPC `name` by calling `answer` as UnaryCall says, by several threads at
  // once. Returns the reactor that the overriding method returns to gRPC; it deletes itself.
  template <class Request, class Response>
  grpc::ServerUnaryReactor* Unary(const char* name, AnswerOn answer_on,
                                  absl::Status (Self::*answer)(const Caller&, const Request&,
                                                               Response*),
                                  grpc::CallbackServerContext* context, const Request* request,
                                  Response* response) {
    return new UnaryCall<Request, Response>(
        services_, FullName(name), answer_on,
        [self = static_cast<Self*>(this), answer](const Caller& caller, const Request& asked,
                                                  Response* answered) {
          return (self->*answer)(caller, asked, answered);
        },
        context, request, response);
  }

  // Answers a call of the RPC `name` with the messages of the source that `open` returns, or with
  // the error of `open`. `open` is called on the thread that `open_on` says. The source may call
  // `wake` as StreamSource says. Returns the reactor that the overriding method returns to gRPC; it
  // deletes itself.
  template <class Request, class Message>
  grpc::ServerWriteReactor<Message>* Stream(const char* name, AnswerOn open_on,
                                            absl::StatusOr<std::unique_ptr<StreamSource<Message>>> (
                                                Self::*open)(const Caller&, const Request&,
                                                             std::function<void()> wake),
                                            grpc::CallbackServerContext* context,
                                            const Request* request, const StreamOptions& options) {
    return StreamCall<Request, Message>::Start(
        services_, options, FullName(name), open_on,
        [self = static_cast<Self*>(this), open](const Caller& caller, const Request& asked,
                                                std::function<void()> wake) {
          return (self->*open)(caller, asked, std::move(wake));
        },
        context, request);
  }

  const ServiceContext services_;

 private:
  static std::string FullName(const char* name) {
    return absl::StrCat("/", Api::service_full_name(), "/", name);
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_

// RpcService is a base class for gRPC services of the callback API. It makes RPCs of plain
// functions, which know requests, responses and callers, and nothing of gRPC.
#ifndef MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_
#define MEGATRAIN_SERVER_TRANSPORT_RPC_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_call.h"
#include "server/transport/unary_call.h"

namespace megatrain {

// `Api` is the generated class of the service. A class that derives from this one overrides the
// virtual methods of Api::CallbackService with calls of Unary and Stream.
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

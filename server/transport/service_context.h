// What the services answer calls with.
#ifndef MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_
#define MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

#include <grpc/grpc_security.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "server/transport/authenticator.h"
#include "server/transport/call_loop.h"
#include "server/transport/call_queue.h"
#include "server/transport/request_observer.h"
#include "server/transport/stream_options.h"
#include "server/transport/stream_pump.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

// All must outlive the server.
struct ServiceContext {
  const Authenticator* authenticator = nullptr;
  CallLoop* loop = nullptr;
  CallQueue* queue = nullptr;
  StreamPump* pump = nullptr;
  UnsentAnswers* answers = nullptr;
  StreamOptions streams;
  RequestObserver observer;  // may be empty

  void Observe(const std::string& method, const grpc::Status& status) const {
    if (observer) observer(method, status.error_code());
  }
};

// Stands for the connection that the call came by, on Unix sockets too, whose peers have no
// addresses: gRPC makes one such object for each, and the call keeps it.
inline const void* ConnectionOf(grpc::ServerContext* context) {
  grpc_auth_context* const connection = grpc_call_auth_context(context->c_call());
  grpc_auth_context_release(connection);
  return connection;
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

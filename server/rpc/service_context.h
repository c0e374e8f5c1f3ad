// What the services answer calls with.
#ifndef MEGATRAIN_SERVER_RPC_SERVICE_CONTEXT_H_
#define MEGATRAIN_SERVER_RPC_SERVICE_CONTEXT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "server/rpc/authenticator.h"
#include "server/rpc/call_loop.h"
#include "server/rpc/call_queue.h"
#include "server/rpc/request_observer.h"
#include "server/rpc/stream_options.h"
#include "server/rpc/stream_pump.h"

namespace megatrain {

// All must outlive the server.
struct ServiceContext {
  const Authenticator* authenticator = nullptr;
  CallLoop* loop = nullptr;
  CallQueue* queue = nullptr;
  StreamPump* pump = nullptr;
  StreamOptions streams;
  RequestObserver observer;  // may be empty

  void Observe(const std::string& method, const grpc::Status& status) const {
    if (observer) observer(method, status.error_code());
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_SERVICE_CONTEXT_H_

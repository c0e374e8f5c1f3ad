// What the services answer calls with.
#ifndef MEGATRAIN_SERVER_RPC_SERVICE_CONTEXT_H_
#define MEGATRAIN_SERVER_RPC_SERVICE_CONTEXT_H_

#include "server/rpc/authenticator.h"
#include "server/rpc/call_queue.h"
#include "server/rpc/server_stream.h"
#include "server/rpc/stream_pump.h"

namespace megatrain {

// All must outlive the server.
struct ServiceContext {
  const Authenticator* authenticator = nullptr;
  CallQueue* queue = nullptr;
  StreamPump* pump = nullptr;
  StreamOptions streams;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_SERVICE_CONTEXT_H_

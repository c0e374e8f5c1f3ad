// What the services answer calls with.
#ifndef MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_
#define MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

#include <grpc/grpc_security.h>
#include <grpcpp/server_context.h>

#include "server/transport/call_gate.h"
#include "server/transport/call_queue.h"
#include "server/transport/stream_options.h"
#include "server/transport/turn_scheduler.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

// All must outlive the server.
struct ServiceContext {
  CallGate* gate = nullptr;
  CallQueue* queue = nullptr;
  TurnScheduler* turns = nullptr;
  UnsentAnswers* answers = nullptr;
  StreamOptions streams;
};

enum class AnswerOn {
  kCallback,  // gRPC's thread: for what waits for nothing, if it is known at once who calls
  kQueue,     // a thread of the CallQueue: for what waits for a disk
};

// Stands for the connection that the call came by, on Unix sockets too, whose peers have no
// addresses: gRPC makes one such object for each, and the call keeps it.
inline const void* ConnectionOf(grpc::CallbackServerContext* context) {
  grpc_auth_context* const connection = grpc_call_auth_context(context->c_call());
  grpc_auth_context_release(connection);
  return connection;
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

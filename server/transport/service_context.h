// The parts of the server that services answer calls with.
#ifndef MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_
#define MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

#include <grpc/grpc_security.h>
#include <grpcpp/server_context.h>

#include <chrono>

#include "server/transport/call_gate.h"
#include "server/transport/call_queue.h"
#include "server/transport/turn_scheduler.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

struct StreamOptions {
  // A stream without news sends a heartbeat this often.
  std::chrono::milliseconds heartbeat{10000};
  // A reader that has had all there was gets its next message no sooner than this after the last:
  // steps that are shorter come several to a message, or the newest alone. A job's events are not
  // held up.
  std::chrono::milliseconds pace{50};
};

// All must outlive the server.
struct ServiceContext {
  CallGate* gate = nullptr;
  CallQueue* queue = nullptr;
  TurnScheduler* turns = nullptr;
  UnsentAnswers* answers = nullptr;
  StreamOptions streams;
};

enum class AnswerOn {
  kCallback,  // gRPC's thread: for calls that wait for nothing, if it is known at once who calls
  kQueue,     // a thread of the CallQueue: for calls that wait for a disk
};

// Returns a pointer that stands for the connection of the call, and is only to be compared. It
// works on Unix sockets too, whose peers have no addresses: gRPC makes one such object for each
// connection, and the call keeps it.
inline const void* ConnectionOf(grpc::CallbackServerContext* context) {
  grpc_auth_context* const connection = grpc_call_auth_context(context->c_call());
  grpc_auth_context_release(connection);
  return connection;
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

// ServiceContext holds the parts of the server with which services answer calls.
#ifndef MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_
#define MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

#include <grpc/grpc_security.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>

#include "server/base/call_queue.h"
#include "server/transport/call_gate.h"
#include "server/transport/turn_scheduler.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

// gRPC's objects of a call. The context has the caller's metadata and deadline; the reactor sends
// the answer or the messages of the stream.
using CallContext = grpc::CallbackServerContext;
using UnaryReactor = grpc::ServerUnaryReactor;
template <class Message>
using StreamReactor = grpc::ServerWriteReactor<Message>;

struct StreamOptions {
  // A stream without news sends a heartbeat this often. A caller that has to be checked again
  // (CallGate::Recheck) is checked no more often than this.
  std::chrono::milliseconds heartbeat{10000};
  // A reader that has received everything gets its next message no sooner than this after the last
  // one. If steps are shorter than this, a message has several of them, or only the newest. Events
  // of a job are sent at once.
  std::chrono::milliseconds pace{50};
};

// No pointer is null. Their targets must outlive the services and their calls.
struct ServiceContext {
  CallGate* gate = nullptr;
  CallQueue* queue = nullptr;
  TurnScheduler* turns = nullptr;
  UnsentAnswers* answers = nullptr;
  StreamOptions streams;
};

// The thread on which a call is answered, or the source of a stream opened.
enum class AnswerOn {
  // For calls that do not wait: gRPC's thread, or the thread that made room for the answer
  // (UnsentAnswers). If the caller cannot be authenticated without waiting, the call begins on a
  // thread of the CallQueue.
  kCallback,
  kQueue,  // a thread of the CallQueue: for calls that wait for a disk
};

// Returns a pointer that identifies the connection of the call. It may only be compared, and is
// valid as long as the call. It works on Unix sockets too, whose peers have no addresses: gRPC
// makes one such object for each connection, and the call keeps it.
inline const void* ConnectionOf(CallContext* context) {
  grpc_auth_context* const connection = grpc_call_auth_context(context->c_call());
  grpc_auth_context_release(connection);
  return connection;
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_SERVICE_CONTEXT_H_

// How a unary RPC is answered: who calls is told, a plain function from request to response is run,
// and its Status becomes gRPC's.
#ifndef MEGATRAIN_SERVER_RPC_UNARY_CALL_H_
#define MEGATRAIN_SERVER_RPC_UNARY_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/rpc/authenticator.h"
#include "server/rpc/call_queue.h"
#include "server/rpc/error_status.h"

namespace megatrain {

// Answers on gRPC's thread: `answer` is absl::Status(const Caller&) and does not wait for anything.
template <class Answer>
grpc::ServerUnaryReactor* AnswerNow(const Authenticator& authenticator,
                                    grpc::CallbackServerContext* context, Answer answer) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = authenticator.Authenticate(*context);
  reactor->Finish(ToGrpcStatus(caller.ok() ? answer(*caller) : caller.status()));
  return reactor;
}

// Answers `request` on a thread of `queue`, for what waits for a disk. A call whose client has gone
// or whose deadline has passed by then is not acted on.
template <class Request, class Answer>
grpc::ServerUnaryReactor* AnswerLater(const Authenticator& authenticator, CallQueue* queue,
                                      grpc::CallbackServerContext* context, const Request& request,
                                      Answer answer) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = authenticator.Authenticate(*context);
  if (!caller.ok()) {
    reactor->Finish(ToGrpcStatus(caller.status()));
    return reactor;
  }
  const absl::Status added = queue->Add(
      request.ByteSizeLong(),
      [=, caller = *caller, answer = std::move(answer)](const absl::Status& status) {
        absl::Status result = status;
        if (result.ok() && context->IsCancelled()) {
          result =
              context->deadline() <= std::chrono::system_clock::now()
                  ? absl::DeadlineExceededError("the deadline passed before the call was acted on")
                  : absl::CancelledError("the caller went away before the call was acted on");
        }
        if (result.ok()) result = answer(caller);
        reactor->Finish(ToGrpcStatus(result));
      });
  if (!added.ok()) reactor->Finish(ToGrpcStatus(added));
  return reactor;
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_UNARY_CALL_H_

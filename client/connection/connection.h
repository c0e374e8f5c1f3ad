// Connection is the connection to a server. It holds the gRPC channel and the stubs, sets
// deadlines, and explains why a server does not answer.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_CLIENT_CONNECTION_CONNECTION_H_
#define MEGATRAIN_CLIENT_CONNECTION_CONNECTION_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/call_token.h"
#include "client/connection/cancellation.h"
#include "client/connection/credentials.h"
#include "client/connection/server_address.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/node_service.grpc.pb.h"

namespace megatrain::client {

// The timeout of calls that only read state or record a request.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(15);
// The timeout of calls for which the server reads the model's files.
inline constexpr absl::Duration kSubmitTimeout = absl::Seconds(60);

class Connection {
 public:
  // Does not connect; the first call does. `credentials` are used on TCP only, where the connection
  // is always encrypted (TLS). Both arguments are copied.
  explicit Connection(const ServerAddress& address, const Credentials& credentials = {});

  const ServerAddress& address() const { return address_; }
  // The stubs live as long as the connection.
  v1::JobService::Stub* jobs() { return jobs_.get(); }
  v1::NodeService::Stub* nodes() { return nodes_.get(); }

  // Makes a call and waits for its answer, for at most `timeout` with all repetitions, plus the
  // seconds that a token takes (CallToken::Get). Example: connection.Call(connection.jobs(),
  // &v1::JobService::Stub::GetJob, request). Repeats the call while the server says that it is
  // starting or overloaded, and once with a new token if the server wants another. Returns the
  // errors of Explain, and Cancelled if `cancellation`, which may be null, ended the call.
  template <class Stub, class Request, class Response>
  absl::StatusOr<Response> Call(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, absl::Duration timeout = kCallTimeout,
                                Cancellation* cancellation = nullptr) {
    Response response;
    const absl::Status status = CallUntil(
        absl::Now() + timeout, cancellation,
        [&](grpc::ClientContext* context) { return (stub->*method)(context, request, &response); });
    if (!status.ok()) return status;
    NoteAnswer();
    return response;
  }

  // The context of a new stream. The context has no deadline, since jobs last for weeks. Keepalive
  // pings find a peer that is gone.
  struct StreamCall {
    std::unique_ptr<grpc::ClientContext> context;  // must outlive the stream
    std::string token;                             // carried by the call; may be empty
  };
  // Returns a context for one stream. May fetch a token, as CallToken::Get does.
  StreamCall NewStream();
  // Call it when a call that carried `token` has ended with `status`. Returns true if the caller
  // should repeat the call at once, because the server wants another token, for example after its
  // restart, and there is one. May fetch a token, as CallToken::Get does.
  bool RenewToken(const absl::Status& status, const std::string& token);

  // Returns true if the channel is connected now. Does not wait.
  bool IsConnected() const;
  // Connects, waiting for at most `timeout`, and returns true if the channel is connected. gRPC
  // does not reconnect while no call waits, and calls do not wait for a connection that has failed.
  // Without Connect a client would find a restarted server only after many seconds.
  bool Connect(absl::Duration timeout);

  // Returns "Bearer TOKEN", the value of the metadata `authorization` that calls carry. Returns
  // FailedPrecondition if calls carry no token, Unauthenticated if the daemon refused to give one,
  // and Unavailable or PermissionDenied if it cannot be asked. May fetch a token, as CallToken::Get
  // does.
  absl::StatusOr<std::string> Authorization();

  // Returns true if the server has ever answered a call with OK or sent a message of a stream.
  // Before the first answer a failed call means that the server is not there; after it, that the
  // connection was lost. Call records answers itself; readers of streams must call NoteAnswer.
  bool has_answered() const { return has_answered_; }
  void NoteAnswer() { has_answered_ = true; }

  // Turns the status of a call into an error for people. An error that the server made keeps its
  // code, message and ErrorInfo (rpc_error.h), except that the message of Unauthenticated tells why
  // the daemon gave no token, if it gave none. If the server did not answer, or the call was cut
  // off (IsConnectionLoss), the error is DeadlineExceeded, Unavailable or PermissionDenied and says
  // why. On a Unix socket Explain tries to connect to find out. Other errors, and OK, are
  // unchanged. Callers that cancel their calls must know it themselves.
  absl::Status Explain(const grpc::Status& status) const;

 private:
  absl::Status CallUntil(absl::Time deadline, Cancellation* cancellation,
                         const std::function<grpc::Status(grpc::ClientContext*)>& call);

  const ServerAddress address_;
  const bool has_certificate_;
  CallToken token_;
  std::atomic<bool> has_answered_{false};
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::NodeService::Stub> nodes_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_CONNECTION_H_

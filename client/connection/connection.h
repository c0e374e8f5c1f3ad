// The connection to a server: channel, stubs, deadlines, and errors that say why it does not
// answer.
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
#include "client/connection/credentials.h"
#include "client/connection/server_address.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/node_service.grpc.pb.h"

namespace megatrain::client {

// The timeout of calls that only read, or note what is wanted.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(15);
// The timeout of calls for which the server reads the model's files and waits for the store.
inline constexpr absl::Duration kSubmitTimeout = absl::Seconds(60);

class Connection {
 public:
  // Connects at the first call. `credentials` are used on TCP only.
  explicit Connection(const ServerAddress& address, const Credentials& credentials = {});

  const ServerAddress& address() const { return address_; }
  // The stubs live as long as the connection.
  v1::JobService::Stub* jobs() { return jobs_.get(); }
  v1::NodeService::Stub* nodes() { return nodes_.get(); }

  // Makes a call, as connection.Call(connection.jobs(), &v1::JobService::Stub::GetJob, request),
  // and waits for its answer. Tries again until `timeout` has passed while the server says that it
  // is starting or has too many calls. Errors are what the server says (rpc_error.h), or
  // Unavailable with why it does not answer, as Explain.
  template <class Stub, class Request, class Response>
  absl::StatusOr<Response> Call(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, absl::Duration timeout = kCallTimeout) {
    Response response;
    const absl::Status status = CallUntil(absl::Now() + timeout, [&](grpc::ClientContext* context) {
      return (stub->*method)(context, request, &response);
    });
    if (!status.ok()) return status;
    NoteAnswer();
    return response;
  }

  // The context of a new stream. It has no deadline, since jobs last for weeks; keepalive finds a
  // peer that is gone.
  struct StreamCall {
    std::unique_ptr<grpc::ClientContext> context;  // must outlive the stream
    std::string token;                             // that the call carries; may be empty
  };
  StreamCall NewStream();
  // To be called when a call that carried `token` ended with `status`. Returns true if it should be
  // made again at once, because the server wants another token, as after its restart, and there is
  // one.
  bool RenewToken(const absl::Status& status, const std::string& token);

  // Whether the channel is connected now. Does not wait.
  bool IsConnected() const;
  // Connects, waiting for at most `timeout`. Returns whether it is connected. gRPC does not
  // reconnect while no call waits, and calls do not wait for a connection that has failed: without
  // this, a server that is back is found only after many seconds.
  bool Connect(absl::Duration timeout);

  // Returns "Bearer TOKEN", which calls carry in their metadata `authorization`. FailedPrecondition
  // if they carry none. May fetch a token, as CallToken::Get.
  absl::StatusOr<std::string> Authorization();

  // Whether the server has ever answered. If not, a failed call means that the server is not there;
  // afterwards it means that the connection was lost. Call notes answers itself; streams call
  // NoteAnswer.
  bool has_answered() const { return has_answered_; }
  void NoteAnswer() { has_answered_ = true; }

  // Returns the error of a call for people. If nobody answered, its message says why in place of
  // gRPC's words; a Unix socket is tried for that.
  absl::Status Explain(const grpc::Status& status) const;

 private:
  absl::Status CallUntil(absl::Time deadline,
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

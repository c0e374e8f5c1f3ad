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

// Of calls that only look or note what is asked for.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(15);
// Of calls that read the model's files and wait for the store.
inline constexpr absl::Duration kSubmitTimeout = absl::Seconds(60);

class Connection {
 public:
  // Connects at the first call. `credentials` are for TCP.
  explicit Connection(const ServerAddress& address, const Credentials& credentials = {});

  const ServerAddress& address() const { return address_; }
  v1::JobService::Stub* jobs() { return jobs_.get(); }
  v1::NodeService::Stub* nodes() { return nodes_.get(); }

  // connection.Call(connection.jobs(), &v1::JobService::Stub::GetJob, request). Tries again, until
  // the time is over, while the server says that it is starting or has too many calls.
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

  // Of a stream: no deadline, since jobs last for weeks; keepalive finds a peer that is gone.
  struct StreamCall {
    std::unique_ptr<grpc::ClientContext> context;
    std::string token;  // that it carries; may be empty
  };
  StreamCall NewStream();
  // After a call that carried `token` ended with `status`: whether it is to be made again at once,
  // since the server wants another token, as after its restart, and there is one.
  bool RenewToken(const absl::Status& status, const std::string& token);

  // Whether the server can be called at once.
  bool IsConnected() const;
  // Connects, for at most `timeout`: whether it is connected. Nobody else looks after a connection
  // while no call waits, and calls do not wait for one that has failed: without this, a server that
  // is back is found after many seconds.
  bool Connect(absl::Duration timeout);

  // "Bearer TOKEN", as calls carry it in their metadata `authorization`. FailedPrecondition if they
  // carry none.
  absl::StatusOr<std::string> Authorization();

  // Whether the server has ever answered: from then on its silence is a connection that was lost,
  // and before it a server that is not there.
  bool has_answered() const { return has_answered_; }
  void NoteAnswer() { has_answered_ = true; }

  // The error for people: why nobody answers, in place of gRPC's words.
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

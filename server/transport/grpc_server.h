// GrpcServer serves services of gRPC's callback API, with gRPC's own health and reflection, and
// limits what a caller can make it hold.
//
// gRPC 1.51 handles connections, calls, deadlines, cancellation, health, reflection, and waits for
// calls under way when it stops. These parts do what gRPC cannot:
// - ConnectionListener accepts connections, because gRPC's own listener ends for good when file
//   descriptors run out.
// - CallGate decides which calls are let in.
// - CallQueue runs calls that wait for a disk, because gRPC has few threads.
// - TurnScheduler gives all streams their turns on one thread.
// - UnsentAnswers bounds the memory of answers that their callers do not read.
// grpc_server.cc has the limits that gRPC keeps itself, such as the calls of a connection.
#ifndef MEGATRAIN_SERVER_TRANSPORT_GRPC_SERVER_H_
#define MEGATRAIN_SERVER_TRANSPORT_GRPC_SERVER_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/call_queue.h"
#include "server/identity/authenticator.h"
#include "server/transport/call_gate.h"
#include "server/transport/connection_listener.h"
#include "server/transport/observers.h"
#include "server/transport/service_context.h"
#include "server/transport/turn_scheduler.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

struct GrpcServerOptions {
  // "unix:/ABSOLUTE/PATH", made ready by PrepareUnixSocket, or "HOST:PORT".
  std::vector<std::string> listen;
  // Returns credentials, not null, for one listener. Called once for each address "HOST:PORT",
  // before Start returns. Empty: such addresses are refused, because nothing is served on TCP in
  // clear.
  std::function<std::shared_ptr<grpc::ServerCredentials>()> tcp_credentials;
  size_t streams_max = 2000;  // open at a time, of all callers
  StreamOptions streams;
  UnsentAnswers::Options answers;
  RequestObserver request_observer;  // may be empty
  RefusalObserver refusal_observer;  // may be empty
};

struct GrpcService {
  std::string name;  // its full name, "megatrain.v1.JobService", by which its health is asked for
  std::unique_ptr<grpc::Service> service;
};
// Makes the services. `services` lives only until the function returns, so they must copy it. The
// targets of its pointers outlive them.
using MakeGrpcServices = std::function<std::vector<GrpcService>(const ServiceContext& services)>;

// Thread safety: all methods may be called from any thread.
class GrpcServer {
 public:
  // Listens and serves. The health of "" is NOT_SERVING until SetReady, that of the services
  // SERVING. `authenticator` must outlive the server. `make_services` is called once at most,
  // before Start returns. Returns InvalidArgument for TCP without credentials, the errors of
  // ConnectionListener::Listen for an address that cannot be listened on, and Internal if gRPC does
  // not start.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options,
                                                           const Authenticator* authenticator,
                                                           const MakeGrpcServices& make_services);
  // Stops with a grace of a second, if Stop was not called.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Sets the health of service "", the whole daemon: SERVING if jobs can run.
  void SetReady(bool ready);

  // Takes no more connections. Sets every health to NOT_SERVING. Calls CallGate::Stop. Ends streams
  // with STOPPING, and waits for that a second at most, or `grace` if that is shorter. Other calls
  // on open connections are still taken meanwhile. Then takes no more calls, lets those under way
  // end for `grace`, cuts off what is left, and returns when none is left. May be called again,
  // but not by two threads at once.
  void Stop(std::chrono::milliseconds grace);

  // Returns the number of open streams.
  size_t streams() const { return turns_.streams(); }
  // Returns the bytes of answers that are being made or have not left the process (UnsentAnswers).
  size_t unsent_bytes() const { return answers_.bytes(); }
  // Returns the addresses of the options, with the port that the system chose in place of 0.
  const std::vector<std::string>& listening() const { return listening_; }

 private:
  GrpcServer(const GrpcServerOptions& options, const Authenticator* authenticator);

  // An address, and where gRPC takes the connections that come by it.
  struct Entrance {
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
    std::unique_ptr<ConnectionListener> listener;  // ends first
  };

  CallGate gate_;
  CallQueue queue_;
  UnsentAnswers answers_;
  TurnScheduler turns_;
  std::vector<GrpcService> services_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<Entrance> entrances_;
  std::vector<std::string> listening_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_GRPC_SERVER_H_

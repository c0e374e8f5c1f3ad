// A gRPC server for services of the callback API, with gRPC's own health and reflection, and the
// limits on what a caller can make it hold.
//
// What gRPC 1.51 does: connections, calls, deadlines, cancellation, health, reflection, and waiting
// for calls under way when it stops. What it cannot do is ours:
// - ConnectionListener accepts: gRPC's own listener ends for good when file descriptors run out.
// - CallGate lets calls in.
// - CallQueue takes calls that wait for a disk off gRPC's threads, of which there are few.
// - TurnScheduler gives all streams their turns on one thread.
// - UnsentAnswers bounds what answers that are not read hold.
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
#include "server/identity/authenticator.h"
#include "server/transport/call_gate.h"
#include "server/transport/call_queue.h"
#include "server/transport/connection_listener.h"
#include "server/transport/observers.h"
#include "server/transport/service_context.h"
#include "server/transport/turn_scheduler.h"
#include "server/transport/unsent_answers.h"

namespace megatrain {

struct GrpcServerOptions {
  // "unix:/ABSOLUTE/PATH", made ready by PrepareUnixSocket, or "HOST:PORT".
  std::vector<std::string> listen;
  // For each address "HOST:PORT". Empty: they are refused, nothing is served on TCP in clear.
  std::function<std::shared_ptr<grpc::ServerCredentials>()> tcp_credentials;
  size_t streams_max = 2000;  // of all callers
  StreamOptions streams;
  UnsentAnswers::Options answers;
  RequestObserver request_observer;  // may be empty
  RefusalObserver refusal_observer;  // may be empty
};

struct GrpcService {
  std::string name;  // "megatrain.v1.JobService"
  std::unique_ptr<grpc::Service> service;
};
// Makes what is served. `services` outlives what is made.
using MakeGrpcServices = std::function<std::vector<GrpcService>(const ServiceContext& services)>;

// Thread safety: all methods may be called from any thread.
class GrpcServer {
 public:
  // Listens and serves. Health is NOT_SERVING for "" and SERVING for the services. `authenticator`
  // must outlive the server. ConnectionListener::Listen's errors for an address that cannot be
  // listened on.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options,
                                                           const Authenticator* authenticator,
                                                           const MakeGrpcServices& make_services);
  // Stop, if it was not called.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // What health says of the whole daemon, service "": whether jobs can run.
  void SetReady(bool ready);

  // Takes no more calls, ends streams with STOPPING, lets calls under way end, and cuts off what is
  // left after `grace`.
  void Stop(std::chrono::milliseconds grace);

  size_t streams() const { return turns_.streams(); }
  // Of answers that are being made or that their callers have not let out of the process.
  size_t unsent_bytes() const { return answers_.bytes(); }
  // Where it listens: as in the options, with the port that the system chose in place of 0.
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

#include "server/transport/grpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status.h"
#include "grpc/health/v1/health.pb.h"

namespace megatrain {
namespace {

// Calls that wait for a disk: a store on a slow one delays a few callers, not all.
constexpr int kQueueThreads = 4;
// All streams may be opened at once, as after a restart.
constexpr size_t kQueuedCallsMax = 4096;
constexpr size_t kQueuedBytesMax = size_t{32} << 20;

// A job file has at most 1 MiB; the rest of a request is small.
constexpr int kRequestBytesMax = 2 << 20;
constexpr int kMetadataBytesMax = 16 << 10;
// A client multiplexes its calls over one connection; more of them wait in the client. Each that is
// open costs some tens of KiB here; what their answers hold is bounded by UnsentAnswers.
constexpr int kCallsOfConnectionMax = 512;
// For the last messages of streams whose readers are slow.
constexpr std::chrono::milliseconds kStreamsEndMax = std::chrono::seconds(1);
// What gRPC may buffer for all connections.
constexpr size_t kBufferBytesMax = size_t{64} << 20;

// A connection whose peer has vanished is given up after a minute; clients may ask as often as
// every ten seconds.
constexpr int kKeepaliveMilliseconds = 40'000;
constexpr int kKeepaliveTimeoutMilliseconds = 20'000;
constexpr int kClientPingMilliseconds = 10'000;

void SetLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kRequestBytesMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsOfConnectionMax);
  // Requests are small: no window for them need be found by pings, whose answers are polled for.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kClientPingMilliseconds);
  // Two processes on one port would each get a share of the calls.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("megatraind");
  quota.Resize(kBufferBytesMax);
  builder->SetResourceQuota(quota);
  // Threads that wait for calls of reflection, gRPC's one service that is not of the callback API.
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

// Before the first server of the process.
void SetUpGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Held for the life of the process: gRPC cleans up when its last object goes, and then may wait
    // ten seconds for a poller that a large message has left behind.
    grpc_init();
    // Debian's gRPC looks for cycles each time it takes one of its locks: a twentieth of a call.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // Reflection tells of what is linked; gRPC's health service is made without these messages.
    grpc::health::v1::HealthCheckRequest::descriptor();
  });
}

}  // namespace

GrpcServer::GrpcServer(const GrpcServerOptions& options, const Authenticator* authenticator)
    : gate_(authenticator, options.request_observer, options.refusal_observer),
      queue_("calls", kQueueThreads, kQueuedCallsMax, kQueuedBytesMax),
      answers_(options.answers),
      turns_(options.streams_max) {}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const GrpcServerOptions& options, const Authenticator* authenticator,
    const MakeGrpcServices& make_services) {
  SetUpGrpc();
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  std::vector<Entrance> entrances(options.listen.size());
  for (size_t i = 0; i < options.listen.size(); ++i) {
    const std::string& address = options.listen[i];
    const bool is_local = absl::StartsWith(address, "unix:");
    if (!is_local && !options.tcp_credentials) {
      return absl::InvalidArgumentError(
          absl::StrCat("listen: ", address, ": TCP is served with TLS only"));
    }
    MT_ASSIGN_OR_RETURN(entrances[i].listener, ConnectionListener::Listen(address));
    entrances[i].acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        is_local ? grpc::InsecureServerCredentials() : options.tcp_credentials());
  }
  std::unique_ptr<GrpcServer> server(new GrpcServer(options, authenticator));
  server->services_ = make_services(
      {&server->gate_, &server->queue_, &server->turns_, &server->answers_, options.streams});
  // Through the queue's lock its threads see the services. gRPC hands them on too, which a thread
  // sanitizer cannot see: its library is not compiled for one.
  MT_RETURN_IF_ERROR(server->queue_.Add(0, [](const absl::Status&) {}));
  for (const GrpcService& each : server->services_) builder.RegisterService(each.service.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(server->gate_.NewInterceptors());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::InternalError("gRPC cannot be started");
  server->entrances_ = std::move(entrances);
  for (const Entrance& entrance : server->entrances_) {
    server->listening_.push_back(entrance.listener->address());
  }
  for (const GrpcService& each : server->services_) {
    server->server_->GetHealthCheckService()->SetServingStatus(each.name, true);
  }
  server->SetReady(false);
  for (const Entrance& entrance : server->entrances_) {
    entrance.listener->Accept(
        [acceptor = entrance.acceptor.get()](int fd) {
          grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
          connection.fd = fd;
          acceptor->HandleNewConnection(&connection);
        },
        [observer = options.refusal_observer, address = entrance.listener->address()] {
          if (!observer) return;
          observer({Refusal::Kind::kConnection, kNoFilesLeft, address,
                    "the daemon may open no more files (LimitNOFILE= of its unit)"});
        });
  }
  return server;
}

GrpcServer::~GrpcServer() { Stop(std::chrono::seconds(1)); }

void GrpcServer::SetReady(bool ready) {
  server_->GetHealthCheckService()->SetServingStatus("", ready);
}

void GrpcServer::Stop(std::chrono::milliseconds grace) {
  if (server_ == nullptr) return;
  for (Entrance& entrance : entrances_) entrance.listener.reset();
  server_->GetHealthCheckService()->SetServingStatus(false);
  gate_.Stop();
  // The connections are told to end after the streams have their statuses. gRPC closes one when its
  // peer has answered and its calls have ended. Were a status written after that answer, the peer
  // might meet the closed connection in a write of its own, and drop the status unread.
  turns_.Stop(std::min(grace, kStreamsEndMax));
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_->Wait();
  queue_.Stop();
}

}  // namespace megatrain

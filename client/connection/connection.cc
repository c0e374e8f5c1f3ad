#include "client/connection/connection.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <mutex>
#include <random>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/connection/backoff.h"
#include "client/connection/rpc_error.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

// The server allows a ping every ten seconds; a peer that is gone is found after half a minute.
constexpr int kKeepaliveMilliseconds = 20'000;
constexpr int kKeepaliveTimeoutMilliseconds = 10'000;
// The channel's own pauses between attempts, which grow and differ between clients.
constexpr int kReconnectMillisecondsMin = 50;
constexpr int kReconnectMillisecondsMax = 1'000;
// Of one attempt, with TLS over a slow network or on a busy machine.
constexpr int kConnectMillisecondsMax = 10'000;
// A job with its file, and a page of a thousand jobs, have at most a few MiB.
constexpr int kResponseBytesMax = 16 << 20;

// gRPC cleans up when its last object goes, and then may wait ten seconds for a poller that a large
// request has left behind. What is held here for the life of the process lets it end at once.
void KeepGrpc() {
  static std::once_flag once;
  std::call_once(once, [] { grpc_init(); });
}

// gRPC reads the path of a socket as that of a URI.
std::string UriPath(const std::string& path) {
  std::string escaped;
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("/-._~", c)) {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

std::shared_ptr<grpc::Channel> MakeChannel(const ServerAddress& address,
                                           const Credentials& credentials) {
  KeepGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMillisecondsMin);
  // In spite of its name the time that an attempt is given.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMillisecondsMax);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMillisecondsMax);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetMaxReceiveMessageSize(kResponseBytesMax);
  if (address.local()) {
    return grpc::CreateCustomChannel("unix:" + UriPath(address.socket_path),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  // Never in clear: what is sent over TCP may be read on the way.
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = credentials.ca;
  tls.pem_private_key = credentials.key;
  tls.pem_cert_chain = credentials.certificate;
  // A host may have the name of one of gRPC's schemes.
  return grpc::CreateCustomChannel("dns:///" + address.text, grpc::SslCredentials(tls), arguments);
}

void Attach(const std::string& token, grpc::ClientContext* context) {
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
}

}  // namespace

Connection::Connection(const ServerAddress& address, const Credentials& credentials)
    : address_(address),
      has_certificate_(!credentials.certificate.empty()),
      token_(address, credentials.token),
      channel_(MakeChannel(address, credentials)),
      jobs_(v1::JobService::NewStub(channel_)),
      nodes_(v1::NodeService::NewStub(channel_)) {}

Connection::StreamCall Connection::NewStream() {
  StreamCall call{std::make_unique<grpc::ClientContext>(), token_.Get()};
  Attach(call.token, call.context.get());
  return call;
}

bool Connection::RenewToken(const absl::Status& status, const std::string& token) {
  const std::string reason = ReasonOf(status);
  if (reason != "TOKEN_INVALID" && reason != "TOKEN_EXPIRED" &&
      reason != "UNAUTHENTICATED_CALLER") {
    return false;
  }
  return token_.Renew(token);
}

bool Connection::IsConnected() const {
  return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
}

bool Connection::Connect(absl::Duration timeout) {
  return channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout));
}

absl::StatusOr<std::string> Connection::Authorization() {
  if (const std::string token = token_.Get(); !token.empty()) return "Bearer " + token;
  if (!address_.local()) {
    return absl::FailedPreconditionError(
        absl::StrCat(address_.text,
                     ": there is no token for this server; one is in "
                     "MEGATRAIN_TOKEN or the context's --token-file"));
  }
  const absl::Status problem = token_.problem();
  return WhyUnreachable(address_, !problem.ok() ? problem
                                                : absl::FailedPreconditionError(absl::StrCat(
                                                      address_.text,
                                                      ": calls to this server carry no token: its "
                                                      "socket is private")));
}

absl::Status Connection::Explain(const grpc::Status& status) const {
  const absl::Status error = FromGrpcStatus(status);
  if (absl::IsUnauthenticated(error)) {
    // Why the daemon gave no token says more than that the call carried none.
    const absl::Status problem = token_.problem();
    if (!problem.ok()) return WithMessage(error, std::string(problem.message()));
  }
  if (!ReasonOf(error).empty()) return error;
  if (absl::IsDeadlineExceeded(error)) {
    return absl::DeadlineExceededError(absl::StrCat(
        address_.text, ": the server did not answer in time; it is busy or hangs: try again"));
  }
  if (!IsConnectionLoss(error)) return error;
  const std::string words = absl::StrCat(absl::IsUnavailable(error) ? "" : "the call was cut off: ",
                                         status.error_message());
  return address_.local()
             ? WhyUnreachable(address_,
                              absl::UnavailableError(absl::StrCat(address_.text, ": ", words)))
             : WhyTlsFails(address_.text, words, has_certificate_ && absl::IsUnavailable(error));
}

absl::Status Connection::CallUntil(absl::Time deadline, Cancellation* cancellation,
                                   const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  Backoff backoff(std::random_device{}());
  bool renewed = false;
  Cancellation never;
  if (cancellation == nullptr) cancellation = &never;
  const absl::Status cancelled = absl::CancelledError("the call was cancelled");
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const std::string token = token_.Get();
    Attach(token, &context);
    if (!cancellation->Begin(&context)) return cancelled;
    const grpc::Status answer = call(&context);
    if (!cancellation->End() && !answer.ok()) return cancelled;
    const absl::Status status = Explain(answer);
    if (!renewed && RenewToken(status, token)) {
      renewed = true;
      continue;
    }
    const std::string reason = ReasonOf(status);
    if (reason != "OVERLOADED" && reason != "STARTING") return status;
    const absl::Duration pause = backoff.Next();
    if (absl::Now() + pause >= deadline) return status;
    if (!cancellation->Sleep(pause)) return cancelled;
  }
}

}  // namespace megatrain::client

// Declares the functions that the transport calls to tell the metrics and the log of requests and
// refusals. They are called from any thread, by several at once, and must not block.
#ifndef MEGATRAIN_SERVER_TRANSPORT_OBSERVERS_H_
#define MEGATRAIN_SERVER_TRANSPORT_OBSERVERS_H_

#include <functional>
#include <string>
#include <string_view>

namespace megatrain {

// Called before the status of an RPC is sent, for each RPC of a service that is registered.
// `method` is its full name, "/megatrain.v1.JobService/GetJob", and `code` its grpc::StatusCode.
using RequestObserver = std::function<void(std::string_view method, int code)>;

// A call or a connection that was not let in, or a stream whose caller no longer is
// (CallGate::Recheck).
struct Refusal {
  enum class Kind {
    kConnection,  // closed before anything was read from it
    kCaller,      // the Authenticator returned an error for the caller
  };
  Kind kind = Kind::kCaller;
  // The name of an ErrorReason of the API for a call, "TOKEN_EXPIRED"; kNoFilesLeft for a
  // connection.
  std::string reason;
  // The peer's address as gRPC tells it for a call, "ipv4:192.0.2.7:51234", which is not proved;
  // the listener's own address for a connection.
  std::string peer;
  std::string message;  // for people
};
using RefusalObserver = std::function<void(const Refusal& refusal)>;

// The reason of a connection for which the process has no file descriptor to spare.
inline constexpr char kNoFilesLeft[] = "NO_FILES_LEFT";

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_OBSERVERS_H_

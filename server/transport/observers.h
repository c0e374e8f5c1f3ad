// The transport calls these functions to tell the metrics and the log of requests and refusals.
// They are called from any thread, by several at once, and must not block.
#ifndef MEGATRAIN_SERVER_TRANSPORT_OBSERVERS_H_
#define MEGATRAIN_SERVER_TRANSPORT_OBSERVERS_H_

#include <functional>
#include <string>
#include <string_view>

namespace megatrain {

// Called for every RPC before its status is sent. `method`: "/megatrain.v1.JobService/GetJob", of a
// service that is registered. `code`: gRPC's.
using RequestObserver = std::function<void(std::string_view method, int code)>;

// A call or a connection that was not let in.
struct Refusal {
  enum class Kind {
    kConnection,  // closed before anything was read from it
    kCaller,      // a call by somebody who is not known
  };
  Kind kind = Kind::kCaller;
  std::string reason;  // a call's: a name of the API's ErrorReason, "TOKEN_EXPIRED"
  std::string peer;    // gRPC's, "ipv4:192.0.2.7:51234", or the listener's address; not proved
  std::string message;
};
using RefusalObserver = std::function<void(const Refusal& refusal)>;

// The reason of a connection for which the process has no file descriptor to spare.
inline constexpr char kNoFilesLeft[] = "NO_FILES_LEFT";

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_OBSERVERS_H_

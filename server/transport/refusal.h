// Calls and connections that are not let in, told to who looks on.
#ifndef MEGATRAIN_SERVER_TRANSPORT_REFUSAL_H_
#define MEGATRAIN_SERVER_TRANSPORT_REFUSAL_H_

#include <functional>
#include <string>

namespace megatrain {

struct Refusal {
  enum class Kind {
    kConnection,  // closed before anything was read from it
    kCaller,      // a call by somebody who is not known
  };
  Kind kind = Kind::kCaller;
  std::string reason;  // of a call a name of the API's ErrorReason: "TOKEN_EXPIRED"
  std::string peer;    // gRPC's, "ipv4:192.0.2.7:51234", or the listener's address; not proved
  std::string message;
};

// Called from any thread; must not block.
using RefusalObserver = std::function<void(const Refusal& refusal)>;

// Of a connection for which the process has no file descriptor to spare.
inline constexpr char kNoFilesLeft[] = "NO_FILES_LEFT";

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_REFUSAL_H_

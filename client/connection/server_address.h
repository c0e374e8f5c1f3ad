// Parses the address of a server, unix:PATH or HOST:PORT, and finds out why a server does not
// answer.
#ifndef MEGATRAIN_CLIENT_CONNECTION_SERVER_ADDRESS_H_
#define MEGATRAIN_CLIENT_CONNECTION_SERVER_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain::client {

inline constexpr char kDefaultServer[] = "unix:/run/megatrain/megatrain.sock";

struct ServerAddress {
  std::string text;         // as people write it: "unix:/run/m.sock", "node7:9463"
  std::string socket_path;  // absolute path of a Unix socket; empty: TCP

  // Returns true for a Unix socket. Client and server are then on one machine, and a path names the
  // same file for both.
  bool local() const { return !socket_path.empty(); }
};

// Parses "unix:PATH" or "HOST:PORT". A relative PATH starts at the working directory. Returns
// InvalidArgument, naming the two forms, for any other text, and for a PATH that is too long for a
// socket.
absl::StatusOr<ServerAddress> ParseServerAddress(const std::string& text);

// Tries to connect to a Unix socket that does not answer, without waiting, and returns why it does
// not: PermissionDenied if this user may not connect, `otherwise` if connecting works or would have
// to wait, and Unavailable for any other reason. REQUIRES: address.local(); `address` is from
// ParseServerAddress.
absl::Status WhyUnreachable(const ServerAddress& address, const absl::Status& otherwise);

// Returns Unavailable, with advice, for a TCP server at `address` that does not answer. The cause
// is read from gRPC's message `words`. `has_certificate` says that the client sends a certificate,
// which the server may have refused.
absl::Status WhyTlsFails(const std::string& address, const std::string& words,
                         bool has_certificate);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_SERVER_ADDRESS_H_

// The address of a server: unix:PATH or HOST:PORT.
#ifndef MEGATRAIN_CLIENT_CONNECTION_SERVER_ADDRESS_H_
#define MEGATRAIN_CLIENT_CONNECTION_SERVER_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain::client {

inline constexpr char kDefaultServer[] = "unix:/run/megatrain/megatrain.sock";

struct ServerAddress {
  std::string text;         // as people write it: "unix:/run/m.sock", "node7:9463"
  std::string socket_path;  // of a Unix socket, absolute; empty: TCP

  // Whether client and server are on one machine, so that paths mean the same to both.
  bool local() const { return !socket_path.empty(); }
};

// Parses "unix:PATH" or "HOST:PORT". A relative PATH is taken from the working directory.
// InvalidArgument says what is expected.
absl::StatusOr<ServerAddress> ParseServerAddress(const std::string& text);

// Returns why a Unix socket does not answer, by connecting to it: Unavailable, or PermissionDenied
// if this user may not connect. `otherwise` is the message if connecting works. REQUIRES:
// address.local().
absl::Status WhyUnreachable(const ServerAddress& address, const std::string& otherwise);

// Returns why a server on TCP does not answer, from gRPC's message `words`: Unavailable, with what
// to do. `has_certificate`: the client sends a certificate, which the server may have refused.
absl::Status WhyTlsFails(const std::string& address, const std::string& words,
                         bool has_certificate);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_SERVER_ADDRESS_H_

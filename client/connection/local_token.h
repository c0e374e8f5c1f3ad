// Fetches the token that proves this process's user to a daemon on a shared Unix socket. The daemon
// sends a token, or why it gives none, to each process that connects to the companion socket
// PATH.auth. A token is valid for some minutes.
#ifndef MEGATRAIN_CLIENT_CONNECTION_LOCAL_TOKEN_H_
#define MEGATRAIN_CLIENT_CONNECTION_LOCAL_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace megatrain::client {

struct LocalToken {
  std::string token;
  absl::Duration lifetime;  // for how long the daemon accepts the token from now on
};

// Fetches a token for the socket at `socket_path`, and waits for at most `timeout`. Errors:
// - NotFound: there is no companion socket, because the socket is private and needs no token; or no
//   daemon listens on the companion socket; or its path is too long for a socket.
// - PermissionDenied: this user may not connect.
// - Unauthenticated: the daemon refuses this user a token. The message is the daemon's.
// - Unavailable: the daemon does not answer, or its answer is not a token, or no socket can be
//   made, for example because no descriptor is left.
absl::StatusOr<LocalToken> FetchLocalToken(const std::string& socket_path,
                                           absl::Duration timeout = absl::Seconds(5));

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_LOCAL_TOKEN_H_

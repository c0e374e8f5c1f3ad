// Fetches the token that proves this process' user to a daemon on a shared Unix socket. The daemon
// sends one to whoever connects to the companion socket PATH.auth; it is good for some minutes.
#ifndef MEGATRAIN_CLIENT_CONNECTION_LOCAL_TOKEN_H_
#define MEGATRAIN_CLIENT_CONNECTION_LOCAL_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace megatrain::client {

struct LocalToken {
  std::string token;
  absl::Duration lifetime;
};

// Waits for some seconds at most. `socket_path` is PATH. NotFound: there is no companion, because
// the socket is private and needs no token, or no daemon is there. PermissionDenied: this user may
// not connect. Unauthenticated: the daemon has no token for this user, and says why. Unavailable:
// it does not answer as it should.
absl::StatusOr<LocalToken> FetchLocalToken(const std::string& socket_path);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_LOCAL_TOKEN_H_

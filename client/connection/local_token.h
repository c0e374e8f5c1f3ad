// The token that proves this process' user to a daemon on a shared Unix socket. The daemon mints it
// on the companion socket PATH.auth, for whoever connects, and takes it for some minutes.
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

// Waits for some seconds at most. NotFound: the socket has no companion, it is private and needs no
// token, or no daemon is there. PermissionDenied: this user may not connect. Unauthenticated: the
// daemon has no token for this user, and says why.
absl::StatusOr<LocalToken> FetchLocalToken(const std::string& socket_path);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_LOCAL_TOKEN_H_

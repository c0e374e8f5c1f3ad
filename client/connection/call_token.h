// The token that calls to a server carry. On TCP it is the user's own token, and the connection is
// encrypted. On a shared Unix socket the token is fetched from the daemon and renewed before it
// expires; the user's own token is never sent there.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_CLIENT_CONNECTION_CALL_TOKEN_H_
#define MEGATRAIN_CLIENT_CONNECTION_CALL_TOKEN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/connection/server_address.h"
#include "engine/base/mutex.h"

namespace megatrain::client {

class CallToken {
 public:
  // `token` is the user's own token, which only TCP uses. Empty means none. Both arguments are
  // copied.
  CallToken(const ServerAddress& address, const std::string& token);

  // Returns the token for the next call. The result is empty if calls need no token, or if there is
  // none and the server will refuse the call. Get may fetch a token, which takes some seconds at
  // most; if that fails the result is empty, and problem() says why.
  std::string Get();
  // Call it when the server has refused `token`, which may be empty. Returns true if Get now
  // returns a token that is another one and not empty, and always false on TCP. May fetch a token,
  // as Get does.
  bool Renew(const std::string& token);
  // Returns Unauthenticated with the daemon's words if the last fetch was refused, another error if
  // it failed otherwise, and OK if it gave a token or nobody was there to give one. Waits while
  // another thread fetches.
  absl::Status problem() const;

 private:
  void Fetch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServerAddress address_;
  mutable Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  absl::Time renew_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_CALL_TOKEN_H_

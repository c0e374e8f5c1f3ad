// CallToken holds the token that calls to a server carry. On TCP it is the user's own token, and
// the connection is encrypted. On a Unix socket that several users share, the token is fetched from
// the daemon (local_token.h) and renewed before it expires. Calls on a private Unix socket need
// none. The user's own token is never sent on a Unix socket.
//
// Thread safety: all methods may be called from any thread. They wait while another thread fetches
// a token.
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
  // none and the server will refuse the call. Get may fetch a token, which takes at most some
  // seconds. If that fails the result is empty; see problem().
  std::string Get();
  // Call it when the server has refused `token`, which may be empty. Returns true if Get now
  // returns a token that differs from `token` and is not empty. Always returns false on TCP. May
  // fetch a token, as Get does.
  bool Renew(const std::string& token);
  // Returns the error of the last fetch (FetchLocalToken), for example Unauthenticated with the
  // daemon's words if the daemon refused a token. Returns OK if the fetch gave a token, if its
  // error was NotFound, as on a private socket, or if nothing was fetched yet.
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

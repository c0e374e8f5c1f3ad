// The token that calls to a server carry, if they carry one: on TCP the user's, which the
// connection encrypts; on a shared Unix socket one that is fetched, and renewed before it expires,
// without the user noticing. The user's own is never sent to a Unix socket.
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
  // `token`: of TCP; empty: there is none.
  CallToken(const ServerAddress& address, const std::string& token);

  // Empty: calls need none, or none can be had; then the server says so.
  std::string Get();
  // After the server refused `token` (which may be empty): whether another can be tried in its
  // place.
  bool Renew(const std::string& token);
  // Why there is no token, if the daemon said so.
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

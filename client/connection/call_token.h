// The token that calls to a server carry. On TCP it is the user's, which the connection encrypts.
// On a shared Unix socket it is fetched from the daemon, and renewed before it expires; the user's
// own is never sent there.
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
  // `token`: the user's, for TCP; empty: none.
  CallToken(const ServerAddress& address, const std::string& token);

  // Returns the token for the next call. Empty: calls need none, or there is none, and the server
  // will refuse the call. May fetch one, which waits for some seconds at most.
  std::string Get();
  // To be called when the server has refused `token`, which may be empty. Returns whether Get
  // returns another one now; on TCP it never does. May fetch one, as Get.
  bool Renew(const std::string& token);
  // Returns why the daemon refused a token at the last fetch, in its words; OK if it did not.
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

// Serves the socket PATH.auth beside a shared Unix socket PATH, so that callers on PATH can prove
// who they are. A process that connects to it is sent one line of JSON, and the connection is
// closed. The line holds a token for the uid that the kernel says the process has (SO_PEERCRED):
//   {"token": "mtl_...", "lifetime_seconds": 300}
//   {"error": "why there is none"}
// The caller sends the token with its calls on PATH, where CallerAuthenticator checks it.
//
// Nothing is read from a peer, and the answer fits the empty socket's buffer, so that no peer, slow
// or hostile, can block the thread. Peers are answered one at a time; each may wait for the account
// database.
#ifndef MEGATRAIN_SERVER_TRANSPORT_PEER_CREDENTIAL_SERVER_H_
#define MEGATRAIN_SERVER_TRANSPORT_PEER_CREDENTIAL_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/identity/account.h"
#include "server/identity/local_tokens.h"
#include "server/transport/connection_listener.h"

namespace megatrain {

// The companion of the Unix socket PATH is PATH with this suffix.
inline constexpr char kPeerCredentialSuffix[] = ".auth";

// Answers on the Unix socket `path`, PATH.auth, until the returned listener is destroyed. `path`
// must not exist (see PrepareUnixSocket). The socket has mode 0600 until ShareUnixSocket changes
// it. `accounts` and `tokens` must outlive the listener. Returns the errors of
// ConnectionListener::Listen.
absl::StatusOr<std::unique_ptr<ConnectionListener>> ServePeerCredentials(
    const std::string& path, const AccountCache* accounts, LocalTokens* tokens);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_PEER_CREDENTIAL_SERVER_H_

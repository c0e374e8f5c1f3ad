// The socket beside a shared Unix socket, PATH.auth, that tells callers apart: whoever connects is
// sent a token for the uid that the kernel says it has (SO_PEERCRED), as one line of JSON, and the
// connection is closed:
//   {"token": "mtl_...", "lifetime_seconds": 300}
//   {"error": "why there is none"}
// Nothing is read from a peer, and the answer fits the empty socket's buffer, so that no peer, slow
// or hostile, can block the thread. Peers are answered one at a time.
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

// Answers on the Unix socket `path`, which must not exist and has mode 0600 at first, until the
// listener is destroyed. `accounts` and `tokens` must outlive it. Errors as
// ConnectionListener::Listen's.
absl::StatusOr<std::unique_ptr<ConnectionListener>> ServePeerCredentials(
    const std::string& path, const AccountCache* accounts, LocalTokens* tokens);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_PEER_CREDENTIAL_SERVER_H_

#include "server/transport/peer_credential_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

nlohmann::ordered_json AnswerTo(int connection, const AccountCache& accounts, LocalTokens* tokens) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return {{"error", "the system does not say who calls"}};
  }
  if (const absl::StatusOr<Account> account = accounts.Find(peer.uid); !account.ok()) {
    return {{"error", std::string(account.status().message())}};
  }
  return {{"token", tokens->Mint(peer.uid)}, {"lifetime_seconds", LocalTokens::kLifetime.count()}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionListener>> ServePeerCredentials(
    const std::string& path, const AccountCache* accounts, LocalTokens* tokens) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<ConnectionListener> listener,
                      ConnectionListener::Listen(absl::StrCat("unix:", path)));
  listener->Accept([accounts, tokens](int connection) {
    const std::string line = AnswerTo(connection, *accounts, tokens)
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                             "\n";
    // A peer that has gone by now does not matter.
    (void)!send(connection, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    close(connection);
  });
  return listener;
}

}  // namespace megatrain

// Who may call a daemon, as its configuration says: what its listeners ask of callers, and the
// authenticator that judges it.
//
// Thread safety: one thread at a time; the authenticator from any.
#ifndef MEGATRAIN_SERVER_DAEMON_ACCESS_H_
#define MEGATRAIN_SERVER_DAEMON_ACCESS_H_

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/daemon_config.h"
#include "server/identity/account.h"
#include "server/identity/bearer_tokens.h"
#include "server/identity/caller_authenticator.h"
#include "server/identity/local_tokens.h"
#include "server/identity/tls_material.h"
#include "server/transport/peer_credential_server.h"

namespace megatrain {

class Access {
 public:
  // Makes the Unix sockets' places ready, begins to mint tokens for shared ones, and reads what the
  // configuration names. Before the daemon listens.
  static absl::StatusOr<std::unique_ptr<Access>> Prepare(
      const DaemonConfig& config, std::function<void(const std::string& line)> log,
      std::function<void(const std::string& line)> warn);

  // Takes over what of `config` can be changed while the daemon runs: administrators, the files of
  // TLS, the tokens file. An error changes nothing. REQUIRES: KeysThatNeedRestart has none of them.
  absl::Status Reload(const DaemonConfig& config);

  const Authenticator& authenticator() const { return *authenticator_; }
  // Of one more TCP listener. REQUIRES: the configuration has one.
  std::shared_ptr<grpc::ServerCredentials> MakeTcpCredentials() const;
  // Null without TCP listeners.
  TlsMaterial* tls() const { return tls_.get(); }

  // Whether others than the daemon's own user can reach it.
  bool shared() const { return shared_; }

  // When the daemon listens: lets those who may reach shared sockets.
  absl::Status ShareSockets();

 private:
  Access(std::function<void(const std::string& line)> log,
         std::function<void(const std::string& line)> warn)
      : log_(std::move(log)), warn_(std::move(warn)) {}
  absl::Status PrepareSockets(const std::vector<std::string>& listen);
  absl::Status PrepareTcp(const DaemonConfig& config);

  const std::function<void(const std::string&line)> log_, warn_;
  AccountCache accounts_;
  bool shared_ = false;
  std::vector<std::string> shared_sockets_;      // paths; empty: all are private
  std::unique_ptr<LocalTokens> local_tokens_;    // of shared ones
  std::unique_ptr<BearerTokens> bearer_tokens_;  // null: there is no tokens file
  std::unique_ptr<TlsMaterial> tls_;             // null: there is no TCP
  std::optional<CallerAuthenticator> authenticator_;
  std::vector<std::unique_ptr<ConnectionListener>> token_servers_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_ACCESS_H_

// Lets callers in as the configuration says: makes what the listeners need, and the authenticator.
//
// Thread safety: one thread at a time; the authenticator may be used from any.
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
  // Makes the Unix sockets' places ready, begins to hand out tokens beside shared ones, and reads
  // the files that the configuration names. To be called before the daemon listens. `log` and
  // `warn` are called from any thread. Errors name the key of the configuration.
  static absl::StatusOr<std::unique_ptr<Access>> Prepare(
      const DaemonConfig& config, std::function<void(const std::string& line)> log,
      std::function<void(const std::string& line)> warn);

  // Takes over what of `config` can be changed while the daemon runs: administrators, the files of
  // TLS, the tokens file. An error changes nothing. REQUIRES: KeysThatNeedRestart has none of them.
  absl::Status Reload(const DaemonConfig& config);

  const Authenticator& authenticator() const { return *authenticator_; }
  // Returns credentials for one more TCP listener, which must not outlive this. REQUIRES: the
  // configuration has a TCP listener.
  std::shared_ptr<grpc::ServerCredentials> MakeTcpCredentials() const;
  // Null without TCP listeners.
  TlsMaterial* tls() const { return tls_.get(); }

  // Whether others than the daemon's own user can reach it.
  bool shared() const { return shared_; }

  // Opens the shared sockets to the group that may use them. To be called when the daemon listens.
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

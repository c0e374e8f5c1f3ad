// Access prepares the sockets, TLS files and tokens that the configuration names, and makes the
// authenticator that identifies callers.
//
// Thread safety: one thread at a time. Any thread may use the authenticator.
#ifndef MEGATRAIN_SERVER_DAEMON_ACCESS_H_
#define MEGATRAIN_SERVER_DAEMON_ACCESS_H_

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/daemon_config.h"
#include "server/identity/account.h"
#include "server/identity/bearer_tokens.h"
#include "server/identity/caller_authenticator.h"
#include "server/identity/local_tokens.h"
#include "server/identity/tls_file_watch.h"
#include "server/transport/peer_credential_server.h"

namespace megatrain {

class Access {
 public:
  // Checks the directories of the Unix sockets and removes sockets that nobody listens on. If any
  // socket is shared (DaemonConfig::listen), starts a token server beside each socket
  // (peer_credential_server.h). If there is a TCP listener, reads the TLS files and the tokens
  // file. To be called before the daemon listens.
  //
  // Both functions are copied. `log` is called by ShareSockets. `warn` is called from any thread,
  // when the TLS files are read again or stay bad, and when the tokens file turns bad or good
  // again. Prepare and Reload call it for certificates that are not valid now. It is called under a
  // lock, so it must not call this object or its authenticator.
  //
  // Returns the errors of AccountCache::Find for administrators, of PrepareUnixSocket,
  // ConnectionListener::Listen and ShareUnixSocket for sockets, and of ReadTlsFiles and
  // ReadTokenFile for files. The message names the key of the configuration or the socket. Returns
  // Unavailable if the system has no random bytes.
  static absl::StatusOr<std::unique_ptr<Access>> Prepare(
      const DaemonConfig& config, std::function<void(const std::string& line)> log,
      std::function<void(const std::string& line)> warn);

  // Replaces the administrators, the TLS files and the tokens file by those of `config`. Whether
  // listeners use TLS, client certificates and tokens stays as it was at Prepare. A tokens file is
  // not read if they use none.
  //
  // Returns Prepare's errors for these three, and FailedPrecondition if `config` no longer names a
  // file that listeners use. On an error nothing has changed, with one exception. If the tokens
  // file turns bad during the call, the new TLS files are already in use. Then either the tokens of
  // before stay good, or all tokens are refused until the file is valid again.
  absl::Status Reload(const DaemonConfig& config);

  // Valid as long as this object.
  const Authenticator& authenticator() const { return *authenticator_; }
  // Returns credentials for one more TCP listener. This object must outlive the server that uses
  // them. REQUIRES: the configuration has a TCP listener.
  std::shared_ptr<grpc::ServerCredentials> MakeTcpCredentials() const;
  // Returns null if the configuration has no TCP listener. Valid as long as this object.
  TlsFileWatch* tls() const { return tls_.get(); }

  // Returns true if others than the daemon's own user can reach it: a socket is shared, or there is
  // a TCP listener.
  bool shared() const { return shared_; }

  // If any Unix socket is shared, lets a group connect to each of them (ShareUnixSocket). A private
  // one stays closed by its directory. Returns ShareUnixSocket's errors. REQUIRES: the daemon
  // listens on the sockets.
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
  std::unique_ptr<LocalTokens> local_tokens_;    // null: all sockets are private
  std::unique_ptr<BearerTokens> bearer_tokens_;  // null: there is no tokens file
  std::unique_ptr<TlsFileWatch> tls_;            // null: there is no TCP
  std::optional<CallerAuthenticator> authenticator_;
  std::vector<std::unique_ptr<ConnectionListener>> token_servers_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_ACCESS_H_

// CallerAuthenticator is the daemon's authenticator. It decides by the transport of a call, which
// gRPC tells and no caller can choose: TCP is served with TLS only, Unix sockets without.
//
// | transport                  | who calls                                                        |
// |----------------------------|------------------------------------------------------------------|
// | private Unix socket        | the daemon's user: only this user and root can connect           |
// | shared Unix socket         | the uid of a LocalTokens token, which its companion socket gives |
// |                            | (peer_credential_server.h)                                       |
// | TCP with TLS               | the user of a BearerTokens token; without one, the account that  |
// |                            | the client certificate's subject names in its CN                 |
//
// A socket is private if only the daemon's user can enter its directory. gRPC does not tell one
// Unix socket from another, so all count as shared if one is.
//
// Refused calls get Unauthenticated with one of these reasons:
// - UNAUTHENTICATED_CALLER: no proof, malformed metadata `authorization`, or another transport.
// - TOKEN_INVALID: the token is not good, or is of another transport.
// - TOKEN_EXPIRED: the token has expired.
// - UNKNOWN_ACCOUNT: this machine has no account of the proved user.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_IDENTITY_CALLER_AUTHENTICATOR_H_
#define MEGATRAIN_SERVER_IDENTITY_CALLER_AUTHENTICATOR_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/identity/account.h"
#include "server/identity/authenticator.h"
#include "server/identity/bearer_tokens.h"
#include "server/identity/local_tokens.h"

namespace megatrain {

// The proofs that came with a call.
struct CallCredentials {
  enum class Transport { kUnixSocket, kTls, kOther };

  Transport transport = Transport::kOther;
  // The values of the metadata `authorization`. More than one is refused, except on private Unix
  // sockets, where they are not looked at.
  std::vector<std::string> authorization;
  // CN of the client certificate that TLS has verified, the first if it has several; "" = there is
  // no certificate, or it has no CN.
  std::string certificate_name;
};

class CallerAuthenticator : public Authenticator {
 public:
  // The pointers' targets must outlive the authenticator.
  struct Options {
    const AccountCache* accounts = nullptr;
    // Verifies tokens on shared Unix sockets. Null: Unix sockets are private.
    const LocalTokens* local_tokens = nullptr;
    // Verifies tokens on TCP. Null: no tokens are taken on TCP.
    BearerTokens* bearer_tokens = nullptr;
    // The accounts that are administrators, beside this process' own user.
    std::set<uid_t> administrators;
  };

  // Looks up this process' user, which may wait for the account database. A user whose account is
  // not found, or cannot be read, goes by its number. REQUIRES: options.accounts is not null.
  explicit CallerAuthenticator(Options options);

  // Replaces the administrators for calls from now on.
  void SetAdministrators(std::set<uid_t> administrators);

  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const override;
  // Returns nullopt only if the account must be looked up. On TCP it may read the tokens file.
  std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const override;
  // Returns a function that rechecks a token on TCP, which may be revoked or expire; null for other
  // callers.
  std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const override;
  // Do what Authenticate and AuthenticateAtOnce do, for the credentials of a call.
  absl::StatusOr<Caller> Decide(const CallCredentials& credentials) const;
  std::optional<absl::StatusOr<Caller>> DecideAtOnce(const CallCredentials& credentials) const;

 private:
  // The proof of a caller: a uid or a name; nullopt: it is the daemon's user.
  using Proof = std::optional<AccountKey>;

  absl::StatusOr<Proof> Prove(const CallCredentials& credentials) const;
  absl::StatusOr<Proof> OnUnixSocket(const CallCredentials& credentials) const;
  absl::StatusOr<Proof> OnTls(const CallCredentials& credentials) const;
  // `account` as it was found.
  absl::StatusOr<Caller> CallerOf(const absl::StatusOr<Account>& account) const;

  const Options options_;
  mutable Mutex mutex_;
  std::set<uid_t> administrators_ ABSL_GUARDED_BY(mutex_);
  Caller owner_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_CALLER_AUTHENTICATOR_H_

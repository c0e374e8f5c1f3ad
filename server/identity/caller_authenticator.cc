#include "server/identity/caller_authenticator.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"
#include "server/identity/token_file.h"

namespace megatrain {
namespace {

// Nothing if the call carries none.
absl::StatusOr<std::optional<std::string>> BearerToken(const CallCredentials& credentials) {
  if (credentials.authorization.empty()) return std::optional<std::string>();
  if (credentials.authorization.size() > 1) {
    return CallerRefused(v1::UNAUTHENTICATED_CALLER, "the metadata `authorization` is there twice");
  }
  constexpr size_t kSchemeBytes = sizeof("Bearer ") - 1;
  const std::string& text = credentials.authorization[0];
  if (!absl::StartsWithIgnoreCase(text, "Bearer ") || text.size() == kSchemeBytes) {
    return CallerRefused(v1::UNAUTHENTICATED_CALLER,
                         "the metadata `authorization` is not \"Bearer TOKEN\"");
  }
  return std::optional<std::string>(
      std::string(absl::StripAsciiWhitespace(text.substr(kSchemeBytes))));
}

CallCredentials CredentialsOf(const grpc::ServerContextBase& context) {
  CallCredentials credentials;
  const std::shared_ptr<const grpc::AuthContext> transport = context.auth_context();
  const std::vector<grpc::string_ref> kind =
      transport->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (kind.size() == 1 && kind[0] == "ssl") {
    credentials.transport = CallCredentials::Transport::kTls;
    const std::vector<grpc::string_ref> names =
        transport->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
    if (names.size() == 1) credentials.certificate_name.assign(names[0].data(), names[0].size());
  } else if (absl::StartsWith(context.peer(), "unix")) {
    // "unix:", and "unix-abstract:" of a caller that has bound its own end to such a name.
    credentials.transport = CallCredentials::Transport::kUnixSocket;
  }
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  for (auto it = begin; it != end; ++it) {
    credentials.authorization.emplace_back(it->second.data(), it->second.size());
  }
  return credentials;
}

}  // namespace

CallerAuthenticator::CallerAuthenticator(Options options)
    : options_(std::move(options)), administrators_(options_.administrators) {
  owner_.uid = geteuid();
  owner_.administrator = true;
  const absl::StatusOr<Account> account = options_.accounts->Find(geteuid());
  // A user without an account, as in a container, goes by its number.
  owner_.user = account.ok() ? account->name : absl::StrCat(geteuid());
}

void CallerAuthenticator::SetAdministrators(std::set<uid_t> administrators) {
  MutexLock lock(&mutex_);
  administrators_ = std::move(administrators);
}

absl::StatusOr<Caller> CallerAuthenticator::Authenticate(
    const grpc::ServerContextBase& context) const {
  return Decide(CredentialsOf(context));
}

std::optional<absl::StatusOr<Caller>> CallerAuthenticator::AuthenticateAtOnce(
    const grpc::ServerContextBase& context) const {
  return DecideAtOnce(CredentialsOf(context));
}

std::function<absl::Status()> CallerAuthenticator::Recheck(
    const grpc::ServerContextBase& context) const {
  CallCredentials credentials = CredentialsOf(context);
  if (credentials.transport != CallCredentials::Transport::kTls ||
      credentials.authorization.empty()) {
    return nullptr;
  }
  return [this, credentials = std::move(credentials)] { return Decide(credentials).status(); };
}

absl::StatusOr<Caller> CallerAuthenticator::Decide(const CallCredentials& credentials) const {
  MT_ASSIGN_OR_RETURN(const Proof proof, Prove(credentials));
  return proof.has_value() ? CallerOf(options_.accounts->Find(*proof)) : owner_;
}

std::optional<absl::StatusOr<Caller>> CallerAuthenticator::DecideAtOnce(
    const CallCredentials& credentials) const {
  const absl::StatusOr<Proof> proof = Prove(credentials);
  if (!proof.ok()) return proof.status();
  if (!proof->has_value()) return owner_;
  const auto account = options_.accounts->FindInMemory(**proof);
  if (!account.has_value()) return std::nullopt;
  return CallerOf(*account);
}

absl::StatusOr<CallerAuthenticator::Proof> CallerAuthenticator::Prove(
    const CallCredentials& credentials) const {
  if (credentials.transport == CallCredentials::Transport::kUnixSocket) {
    return OnUnixSocket(credentials);
  }
  if (credentials.transport == CallCredentials::Transport::kTls) return OnTls(credentials);
  return CallerRefused(v1::UNAUTHENTICATED_CALLER,
                       "only callers on the daemon's Unix sockets and on TCP with TLS are known");
}

absl::StatusOr<CallerAuthenticator::Proof> CallerAuthenticator::OnUnixSocket(
    const CallCredentials& credentials) const {
  if (options_.local_tokens == nullptr) return Proof();
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> token, BearerToken(credentials));
  if (!token.has_value()) {
    return CallerRefused(
        v1::UNAUTHENTICATED_CALLER,
        "this socket is shared, and the call carries no token: `megatrain token` prints "
        "one for the metadata `authorization`");
  }
  if (absl::StartsWith(*token, kBearerTokenPrefix)) {
    return CallerRefused(
        v1::TOKEN_INVALID,
        "this token is for TCP; on a Unix socket the daemon asks the system who calls");
  }
  MT_ASSIGN_OR_RETURN(const uid_t uid, options_.local_tokens->Verify(*token));
  return Proof(uid);
}

absl::StatusOr<CallerAuthenticator::Proof> CallerAuthenticator::OnTls(
    const CallCredentials& credentials) const {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> token, BearerToken(credentials));
  if (!token.has_value()) {
    if (credentials.certificate_name.empty()) {
      return CallerRefused(v1::UNAUTHENTICATED_CALLER,
                           "the call carries no token, and the connection no client certificate");
    }
    return Proof(credentials.certificate_name);
  }
  if (absl::StartsWith(*token, LocalTokens::kPrefix)) {
    return CallerRefused(v1::TOKEN_INVALID, "this token is for the daemon's Unix socket alone");
  }
  if (options_.bearer_tokens == nullptr) {
    return CallerRefused(v1::TOKEN_INVALID,
                         "this daemon knows no tokens on TCP, only client certificates");
  }
  MT_ASSIGN_OR_RETURN(std::string user, options_.bearer_tokens->Verify(*token));
  return Proof(std::move(user));
}

absl::StatusOr<Caller> CallerAuthenticator::CallerOf(const absl::StatusOr<Account>& account) const {
  if (absl::IsNotFound(account.status())) {
    return CallerRefused(v1::UNKNOWN_ACCOUNT, std::string(account.status().message()));
  }
  if (!account.ok()) return account.status();
  Caller caller;
  caller.uid = account->uid;
  caller.user = account->name;
  MutexLock lock(&mutex_);
  caller.administrator = account->uid == geteuid() || administrators_.contains(account->uid);
  return caller;
}

}  // namespace megatrain

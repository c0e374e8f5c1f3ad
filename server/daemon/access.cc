#include "server/daemon/access.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/identity/tls_credentials.h"
#include "server/identity/token_file.h"
#include "server/transport/unix_socket.h"

namespace megatrain {
namespace {

absl::StatusOr<std::set<uid_t>> FindAdministrators(const std::vector<std::string>& names,
                                                   const AccountCache& accounts) {
  std::set<uid_t> uids;
  for (const std::string& name : names) {
    const absl::StatusOr<Account> account = accounts.Find(name);
    if (!account.ok()) {
      // An account that is not known may be one whose directory service does not answer yet.
      return absl::Status(account.status().code(),
                          absl::StrCat("administrators: ", name, ": ", account.status().message()));
    }
    uids.insert(account->uid);
  }
  return uids;
}

absl::Status TokensError(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("tokens_file: ", status.message(),
                   absl::IsNotFound(status) ? "; `megatraind token add USER` makes it" : ""));
}

TlsPaths TlsPathsOf(const DaemonConfig& config) {
  return {config.tls_certificate, config.tls_key, config.tls_client_ca};
}

}  // namespace

absl::Status Access::Reload(const DaemonConfig& config) {
  // A listener keeps what it began with.
  for (const auto& [is_used, path, key] :
       {std::tuple(bearer_tokens_ != nullptr, &config.tokens_file, "tokens_file"),
        std::tuple(tls_ != nullptr, &config.tls_certificate, "tls.certificate"),
        std::tuple(tls_ != nullptr && tls_->asks_for_client_certificates(), &config.tls_client_ca,
                   "tls.client_ca")}) {
    if (is_used && path->empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          key, " is no longer set, and the daemon listens with it: restart the daemon"));
    }
  }
  MT_ASSIGN_OR_RETURN(std::set<uid_t> administrators,
                      FindAdministrators(config.administrators, accounts_));
  // What may fail comes before what takes effect; the tokens are read once more for that.
  if (bearer_tokens_ != nullptr) {
    struct stat info = {};
    MT_RETURN_IF_ERROR(TokensError(ReadTokenFile(config.tokens_file, &info).status()));
  }
  if (tls_ != nullptr) MT_RETURN_IF_ERROR(tls_->Reload(TlsPathsOf(config)));
  if (bearer_tokens_ != nullptr) {
    MT_RETURN_IF_ERROR(TokensError(bearer_tokens_->Reload(config.tokens_file)));
  }
  authenticator_->SetAdministrators(std::move(administrators));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Access>> Access::Prepare(
    const DaemonConfig& config, std::function<void(const std::string& line)> log,
    std::function<void(const std::string& line)> warn) {
  std::unique_ptr<Access> access(new Access(std::move(log), std::move(warn)));
  CallerAuthenticator::Options options;
  options.accounts = &access->accounts_;
  MT_ASSIGN_OR_RETURN(options.administrators,
                      FindAdministrators(config.administrators, access->accounts_));
  MT_RETURN_IF_ERROR(access->PrepareSockets(config.listen));
  options.local_tokens = access->local_tokens_.get();
  if (HasTcp(config)) MT_RETURN_IF_ERROR(access->PrepareTcp(config));
  options.bearer_tokens = access->bearer_tokens_.get();
  access->authenticator_.emplace(std::move(options));
  return access;
}

absl::Status Access::PrepareSockets(const std::vector<std::string>& listen) {
  std::vector<std::string> paths;
  bool shared = false;  // one of the sockets
  for (const std::string& address : listen) {
    if (!absl::StartsWith(address, "unix:")) {
      shared_ = true;
      continue;
    }
    paths.push_back(address.substr(sizeof("unix:") - 1));
    MT_ASSIGN_OR_RETURN(const SocketAccess access, PrepareUnixSocket(paths.back()));
    shared = shared || access == SocketAccess::kShared;
  }
  if (!shared) return absl::OkStatus();
  shared_ = true;
  MT_ASSIGN_OR_RETURN(local_tokens_, LocalTokens::Create());
  // Before the sockets themselves: a client that was waiting for them finds its token.
  for (const std::string& path : paths) {
    const std::string companion = path + kPeerCredentialSuffix;
    MT_RETURN_IF_ERROR(PrepareUnixSocket(companion).status());
    MT_ASSIGN_OR_RETURN(std::unique_ptr<ConnectionListener> server,
                        ServePeerCredentials(companion, &accounts_, local_tokens_.get()));
    token_servers_.push_back(std::move(server));
    MT_RETURN_IF_ERROR(ShareUnixSocket(companion).status());
  }
  shared_sockets_ = std::move(paths);
  return absl::OkStatus();
}

absl::Status Access::PrepareTcp(const DaemonConfig& config) {
  TlsFileWatch::Options tls;
  tls.log = warn_;
  MT_ASSIGN_OR_RETURN(tls_, TlsFileWatch::Open(TlsPathsOf(config), std::move(tls)));
  if (config.tokens_file.empty()) return absl::OkStatus();
  BearerTokens::Options tokens;
  tokens.log = warn_;
  absl::StatusOr<std::unique_ptr<BearerTokens>> opened =
      BearerTokens::Open(config.tokens_file, std::move(tokens));
  if (!opened.ok()) return TokensError(opened.status());
  bearer_tokens_ = *std::move(opened);
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> Access::MakeTcpCredentials() const {
  return MakeTlsCredentials(tls_.get());
}

absl::Status Access::ShareSockets() {
  for (const std::string& path : shared_sockets_) {
    MT_ASSIGN_OR_RETURN(const std::string group, ShareUnixSocket(path));
    log_(absl::StrCat("unix:", path, " is shared with the group ", group));
  }
  return absl::OkStatus();
}

}  // namespace megatrain

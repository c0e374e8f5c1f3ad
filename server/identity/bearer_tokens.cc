#include "server/identity/bearer_tokens.h"

#include <openssl/crypto.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"

namespace megatrain {
absl::StatusOr<std::unique_ptr<BearerTokens>> BearerTokens::Open(const std::string& path,
                                                                 Options options) {
  std::unique_ptr<BearerTokens> tokens(new BearerTokens(path, std::move(options)));
  MutexLock lock(&tokens->mutex_);
  MT_RETURN_IF_ERROR(tokens->Read());
  return tokens;
}

absl::Status BearerTokens::Reload(const std::string& path) {
  struct stat info = {};
  MT_RETURN_IF_ERROR(ReadTokenFile(path, &info).status());
  MutexLock lock(&mutex_);
  path_ = path;
  problem_ = Read();  // again: a look belongs to what was read with it
  return problem_;
}

absl::Status BearerTokens::Read() {
  looked_ = options_.now();
  struct stat info = {};
  const absl::StatusOr<std::vector<StoredToken>> read = ReadTokenFile(path_, &info);
  look_ = LookOf(info);
  tokens_.clear();
  if (!read.ok()) return read.status();
  for (const StoredToken& token : *read) tokens_[token.id] = token;
  return absl::OkStatus();
}

void BearerTokens::Refresh() {
  const absl::Time now = options_.now();
  // A clock that was set back must not keep old tokens good.
  if (now >= looked_ && now < looked_ + kLookInterval) return;
  looked_ = now;
  // While there is a problem the file is read at every look: not all of them show in a look.
  if (problem_.ok() && LookAt(path_) == look_) return;
  const absl::Status status = Read();
  if (status != problem_) {
    options_.log(status.ok() ? absl::StrCat("tokens_file: ", path_, " is good again")
                             : absl::StrCat("tokens_file: ", status.message(),
                                            "; no token is good until it is mended"));
  }
  problem_ = status;
}

absl::StatusOr<std::string> BearerTokens::Verify(std::string_view token) {
  const absl::StatusOr<TokenParts> parts = ParseToken(token);
  if (!parts.ok()) return CallerRefused(v1::TOKEN_INVALID, std::string(parts.status().message()));
  MutexLock lock(&mutex_);
  Refresh();
  if (!problem_.ok()) {
    return CallerRefused(
        v1::TOKEN_INVALID,
        "the daemon cannot read its tokens, so that none is good; its log says why");
  }
  const auto found = tokens_.find(parts->id);
  if (found == tokens_.end() || found->second.hash.size() != parts->hash.size() ||
      CRYPTO_memcmp(found->second.hash.data(), parts->hash.data(), parts->hash.size()) != 0) {
    return CallerRefused(v1::TOKEN_INVALID,
                         "the daemon does not know this token, or it was revoked");
  }
  if (options_.now() >= found->second.expires) {
    return CallerRefused(v1::TOKEN_EXPIRED, absl::StrCat("the token ", parts->id, " has expired"));
  }
  return found->second.user;
}

}  // namespace megatrain

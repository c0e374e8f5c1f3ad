#include "server/identity/local_tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

// No genuine token is longer: three numbers of at most 20 digits, and 64 of the MAC.
constexpr size_t kTokenBytesMax = 160;

absl::Status Invalid() {
  return CallerRefused(v1::TOKEN_INVALID,
                       "the token was not made by this daemon since its last start");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalTokens>> LocalTokens::Create(
    std::function<Clock::time_point()> now) {
  Key key;
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return absl::UnavailableError(
        absl::StrCat("the system gives no random bytes: ", std::strerror(errno)));
  }
  return std::unique_ptr<LocalTokens>(new LocalTokens(key, std::move(now)));
}

int64_t LocalTokens::NowSeconds() const {
  return std::chrono::duration_cast<std::chrono::seconds>(now_().time_since_epoch()).count();
}

std::string LocalTokens::Sign(std::string_view text) const {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned bytes = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac, &bytes);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(mac), bytes));
}

std::string LocalTokens::Mint(uid_t uid) {
  const std::string text =
      absl::StrCat(kPrefix, uid, ".", NowSeconds() + kLifetime.count(), ".", ++minted_);
  return absl::StrCat(text, ".", Sign(text));
}

absl::StatusOr<uid_t> LocalTokens::Verify(std::string_view token) const {
  const size_t dot = token.rfind('.');
  if (token.size() > kTokenBytesMax || dot == std::string_view::npos) return Invalid();
  const std::string_view text = token.substr(0, dot);
  const std::string_view given = token.substr(dot + 1);
  const std::string mac = Sign(text);
  // The time that this takes tells nothing of where they differ.
  if (mac.empty() || given.size() != mac.size() ||
      CRYPTO_memcmp(given.data(), mac.data(), mac.size()) != 0) {
    return Invalid();
  }
  // From here on it is what Mint wrote.
  absl::string_view numbers(text.data(), text.size());
  absl::ConsumePrefix(&numbers, kPrefix);
  const std::vector<absl::string_view> parts = absl::StrSplit(numbers, '.');
  int64_t uid = 0, expiry = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &uid) ||
      !absl::SimpleAtoi(parts[1], &expiry)) {
    return Invalid();
  }
  if (NowSeconds() >= expiry) {
    return CallerRefused(v1::TOKEN_EXPIRED, absl::StrCat("the token has expired; one is good for ",
                                                         kLifetime.count(), " s"));
  }
  return static_cast<uid_t>(uid);
}

}  // namespace megatrain

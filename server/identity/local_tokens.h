// Tokens that prove a uid to the daemon that made them, for as long as it runs and for some
// minutes: "mtl_UID.EXPIRY.NUMBER.MAC", where the MAC is HMAC-SHA256 over what stands before it
// with a key that is drawn at start and never leaves the process. Nothing is stored: a token of
// another process, or of this one before it was started again, is a forgery.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_IDENTITY_LOCAL_TOKENS_H_
#define MEGATRAIN_SERVER_IDENTITY_LOCAL_TOKENS_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

class LocalTokens {
 public:
  // By this clock tokens expire: one that nobody can set.
  using Clock = std::chrono::steady_clock;

  static constexpr char kPrefix[] = "mtl_";
  static constexpr std::chrono::seconds kLifetime{300};

  // Unavailable if the system has no randomness to give.
  static absl::StatusOr<std::unique_ptr<LocalTokens>> Create(
      std::function<Clock::time_point()> now = Clock::now);

  std::string Mint(uid_t uid);
  // Whose token it is. UNAUTHENTICATED with TOKEN_INVALID, or TOKEN_EXPIRED.
  absl::StatusOr<uid_t> Verify(std::string_view token) const;

 private:
  using Key = std::array<unsigned char, 32>;

  LocalTokens(const Key& key, std::function<Clock::time_point()> now)
      : key_(key), now_(std::move(now)) {}
  int64_t NowSeconds() const;
  std::string Sign(std::string_view text) const;

  const Key key_;
  const std::function<Clock::time_point()> now_;
  std::atomic<uint64_t> minted_{0};
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_LOCAL_TOKENS_H_

// LocalTokens makes and verifies the tokens by which callers on a shared Unix socket prove their
// uid (peer_credential_server.h). A token is good for kLifetime, and only to the object that made
// it: none outlives a restart of the daemon. No token is stored.
//
// A token is "mtl_UID.EXPIRY.NUMBER.MAC". EXPIRY is a time in seconds of Clock, and NUMBER counts
// the tokens. MAC is the HMAC-SHA256, in hexadecimal, of the text before the last dot. Its key is
// drawn by Create and never leaves the process.
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
#include <utility>

#include "absl/status/statusor.h"

namespace megatrain {

class LocalTokens {
 public:
  // Tokens expire by this clock, because nobody can set it.
  using Clock = std::chrono::steady_clock;

  static constexpr char kPrefix[] = "mtl_";
  static constexpr std::chrono::seconds kLifetime{300};

  // Draws the key. Returns Unavailable if the system has no random bytes. `now` is called from any
  // thread, and may not be empty.
  static absl::StatusOr<std::unique_ptr<LocalTokens>> Create(
      std::function<Clock::time_point()> now = Clock::now);

  // Returns a new token of `uid`, good for kLifetime less up to a second.
  std::string Mint(uid_t uid);
  // Returns the uid of a token. Returns Unauthenticated with TOKEN_INVALID if this object has not
  // made it, and with TOKEN_EXPIRED if it has expired.
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

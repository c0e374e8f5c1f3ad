// Computes the XXH3-128 of bytes that come in pieces. It is a fast hash that finds damage; it does
// not protect against forgery.
#ifndef MEGATRAIN_ENGINE_BASE_CONTENT_HASH_H_
#define MEGATRAIN_ENGINE_BASE_CONTENT_HASH_H_

#include <xxhash.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace megatrain {

class ContentHash {
 public:
  ContentHash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~ContentHash() { XXH3_freeState(state_); }
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void Update(const void* data, int64_t bytes) {
    XXH3_128bits_update(state_, data, static_cast<size_t>(bytes));
  }
  // Returns the hash of all bytes so far, as 32 hex digits.
  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t* const state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_CONTENT_HASH_H_

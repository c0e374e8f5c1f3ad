// Backoff gives the growing pauses between attempts to reach a server.
#ifndef MEGATRAIN_CLIENT_CONNECTION_BACKOFF_H_
#define MEGATRAIN_CLIENT_CONNECTION_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace megatrain::client {

// The pauses are 0.1 s, then twice as long each time, up to 5 s. Each is then made up to a fifth
// shorter or longer, at random, so that many clients do not come back at the same moment.
//
// Thread safety: one thread at a time.
class Backoff {
 public:
  // `seed` is that of the random part of the pauses.
  explicit Backoff(uint64_t seed) : random_(seed) {}

  // Returns the next pause. Does not sleep.
  absl::Duration Next() {
    const absl::Duration pause = next_;
    next_ = std::min(next_ * 2, absl::Seconds(5));
    return pause * std::uniform_real_distribution<double>(0.8, 1.2)(random_);
  }
  // Starts again with the shortest pause.
  void Reset() { next_ = kFirst; }

 private:
  static constexpr absl::Duration kFirst = absl::Milliseconds(100);
  absl::Duration next_ = kFirst;
  std::mt19937_64 random_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_BACKOFF_H_

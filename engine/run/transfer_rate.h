// Tells how fast a long transfer goes and how long it will take.
#ifndef MEGATRAIN_ENGINE_RUN_TRANSFER_RATE_H_
#define MEGATRAIN_ENGINE_RUN_TRANSFER_RATE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace megatrain {

// Not thread-safe.
class TransferRate {
 public:
  // Call it often with what is done. Returns a text for people about once a second and at the end:
  // ": 12.3 MB/s, 5 minutes left", or "" as long as nothing can be said. The rate is that of the
  // last minute. Returns nullopt at all other times.
  std::optional<std::string> Pace(absl::Time now, int64_t done, int64_t total);

 private:
  struct Moment {
    absl::Time time;
    int64_t done = 0;
  };
  std::deque<Moment> moments_;  // those told, of the last minute
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_TRANSFER_RATE_H_

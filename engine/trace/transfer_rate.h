// Tells how fast a long transfer goes and how long it will take.
#ifndef MEGATRAIN_ENGINE_TRACE_TRANSFER_RATE_H_
#define MEGATRAIN_ENGINE_TRACE_TRANSFER_RATE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace megatrain {

// Follows one transfer. Not thread-safe.
class TransferRate {
 public:
  // Takes the bytes that are done at `now` and the bytes in all; `done` does not go back. If `now`
  // does, what was told of later is forgotten. Call it often. Returns a text for people at the
  // first call, about once a second and when all bytes are done, otherwise nullopt. The text goes
  // by the rate of the last minute: ": 12.3 MB/s, 5 minutes left". It is "" in the first three
  // seconds, and if no byte was done in the last minute.
  std::optional<std::string> TextIfDue(absl::Time now, int64_t done, int64_t total);

 private:
  struct Moment {
    absl::Time time;
    int64_t done = 0;
  };
  std::deque<Moment> moments_;  // those told, of the last minute
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_TRANSFER_RATE_H_

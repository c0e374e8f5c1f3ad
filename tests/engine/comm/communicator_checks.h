// What every implementation of Communicator must do, as each rank tries it: one after the other,
// all operations with random values, on even, uneven and empty parts.
#ifndef MEGATRAIN_TESTS_ENGINE_COMM_COMMUNICATOR_CHECKS_H_
#define MEGATRAIN_TESTS_ENGINE_COMM_COMMUNICATOR_CHECKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"

namespace megatrain {

// A stream of a device that does its work at once.
class ImmediateStream : public Stream {};

// How the checks reach memory of the rank's device. All work that was queued is done on return.
struct DeviceBuffers {
  // Makes a buffer with these bytes, and returns its address.
  std::function<void*(const std::vector<char>& content)> make;
  std::function<std::vector<char>(void* buffer, int64_t bytes)> read;
};

// The buffers of a cpu device: host memory, which lives as long as the returned object.
DeviceBuffers HostBuffers();

// How often all data of an operation leaves the groups of ranks (Traffic::outside_bytes): once less
// than there are groups, or never where that is not counted.
struct TimesOutside {
  int gathers = 0, reductions = 0;
};

// Tries all operations, with the same `seed` on every rank. Returns an error that says what is
// wrong. `elements_max` is the size of the largest array.
absl::Status CheckOperations(Communicator& communicator, Stream& stream,
                             const DeviceBuffers& buffers, uint64_t seed, int64_t elements_max,
                             const TimesOutside& outside = {});

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_COMM_COMMUNICATOR_CHECKS_H_

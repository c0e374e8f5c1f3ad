// Runs a loop whose calls wait for a disk. ThreadPool is for loops that compute.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DISK_CONCURRENT_FOR_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DISK_CONCURRENT_FOR_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace megatrain {

// Calls work(index) for every index of [0, count), in this order, on up to `threads` threads, the
// caller's among them, and waits for them. Before each of its own calls, and once when none is left
// to begin, the caller's thread calls go_on(done) with the number of calls that have ended; no call
// begins meanwhile. After an error of either no more calls are made. Returns the error of the
// lowest index, or else that of `go_on`.
absl::Status ConcurrentFor(int count, int threads, absl::FunctionRef<absl::Status(int done)> go_on,
                           absl::FunctionRef<absl::Status(int index)> work);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DISK_CONCURRENT_FOR_H_

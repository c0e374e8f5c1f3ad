// Runs a loop whose calls wait for a disk. ThreadPool is for loops that compute.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DISK_CONCURRENT_FOR_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DISK_CONCURRENT_FOR_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace megatrain {

// Calls work(index) for every index of [0, count) on up to `threads` threads, the caller's among
// them, and waits until all calls have ended. Indices are given out to the threads in their order.
//
// The caller's thread calls go_on(done) before each of its own calls of `work`, and once when no
// index is left. `done` is the number of calls of `work` that have ended. No index is given out
// while `go_on` runs, but a call whose index was given out before may begin.
//
// After an error of `work` or `go_on` no more indices are given out. Returns the error of the
// lowest index that failed, or else that of `go_on`.
absl::Status ConcurrentFor(int count, int threads, absl::FunctionRef<absl::Status(int done)> go_on,
                           absl::FunctionRef<absl::Status(int index)> work);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DISK_CONCURRENT_FOR_H_

// Threads beside those that train.
#ifndef MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_
#define MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

#include <functional>

namespace megatrain {

// Runs `start`, on a thread that is gone when this returns. The threads that it starts, and those
// that they start, take as little from training as they can, whose threads wait for each other many
// times a step:
// - They are the system's batch threads: what wakes them does not take the processor from a thread
//   that trains, but waits for its turn, which is milliseconds.
// - They share one processor, the last of those that the calling thread may use. A call passes
//   through several of them; on one processor it finds its data in the cache and disturbs one
//   training thread, not all.
void StartInBackground(const std::function<void()>& start);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

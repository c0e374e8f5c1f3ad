// Starts threads that disturb training little.
#ifndef MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_
#define MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

#include <functional>

namespace megatrain {

// Runs `start` on a thread that has ended when this returns. The threads that `start` starts, and
// those that they start, disturb training little, whose threads wait for each other many times a
// step:
// - They are batch threads (SCHED_BATCH). One that wakes does not take the processor from a
// training
//   thread, but waits some milliseconds for its turn.
// - They share one processor, the last of those that the calling thread may use. A call passes
//   through several of them. On one processor it finds its data in the cache, and disturbs one
//   training thread, not all.
void StartInBackground(const std::function<void()>& start);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

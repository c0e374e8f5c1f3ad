// Starts threads that disturb training little.
#ifndef MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_
#define MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

#include <functional>

namespace megatrain {

// Runs `start` on a new thread, and returns when that thread has ended. The threads that `start`
// starts, and those that they start, inherit two settings. Both keep them from disturbing the
// threads of training, which wait for each other many times a step. A setting that the system
// refuses is left out.
// - They are batch threads (SCHED_BATCH). One that wakes does not take the processor from a
//   training thread, but waits some milliseconds for its turn.
// - They share one processor, the last of those that the process may use. A call passes through
//   several of them. On one processor it finds its data in the cache, and disturbs one training
//   thread, not all.
void StartInBackground(const std::function<void()>& start);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

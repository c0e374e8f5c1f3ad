// Threads beside those that train.
#ifndef MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_
#define MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

#include <functional>

namespace megatrain {

// Runs `start`, on a thread that is gone when this returns. The threads that it starts, and those
// that they start, are the system's batch threads: what wakes them does not take the processor from
// a thread that trains, but waits for its turn, which is milliseconds. The training threads wait
// for each other many times a step, so that each would otherwise wait for every call.
void StartInBackground(const std::function<void()>& start);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_BACKGROUND_THREADS_H_

#include "server/daemon/background_threads.h"

#include <pthread.h>
#include <sched.h>

#include <thread>

namespace megatrain {

void StartInBackground(const std::function<void()>& start) {
  std::thread([&start] {
    // Threads inherit it. What is not allowed is gone without: calls then cost training more.
    const sched_param none = {};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    start();
  }).join();
}

}  // namespace megatrain

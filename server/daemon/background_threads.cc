#include "server/daemon/background_threads.h"

#include <pthread.h>
#include <sched.h>

#include <thread>

namespace megatrain {
namespace {

// What is not allowed is gone without: calls then cost training more.
void GoToBackground() {
  const sched_param none = {};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return;
  int last = CPU_SETSIZE - 1;
  while (last > 0 && !CPU_ISSET(last, &set)) --last;
  CPU_ZERO(&set);
  CPU_SET(last, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace

void StartInBackground(const std::function<void()>& start) {
  std::thread([&start] {
    GoToBackground();  // what is started inherits it
    start();
  }).join();
}

}  // namespace megatrain

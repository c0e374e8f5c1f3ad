// Names for the system's tools: `top -H`, `perf`, `gdb`.
#ifndef MEGATRAIN_ENGINE_BASE_THREAD_NAME_H_
#define MEGATRAIN_ENGINE_BASE_THREAD_NAME_H_

#include <pthread.h>

namespace megatrain {

// Names the calling thread. Threads that it starts have its name until they name themselves.
template <int size>
void NameThisThread(const char (&name)[size]) {
  static_assert(size <= 16, "the system keeps 15 characters");
  pthread_setname_np(pthread_self(), name);
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_THREAD_NAME_H_

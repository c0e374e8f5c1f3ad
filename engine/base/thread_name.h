// Names threads for the system's tools (`top -H`, `perf`, `gdb`).
#ifndef MEGATRAIN_ENGINE_BASE_THREAD_NAME_H_
#define MEGATRAIN_ENGINE_BASE_THREAD_NAME_H_

#include <pthread.h>

namespace megatrain {

// Names the calling thread. Threads that it starts later inherit the name until they set their own.
// A name longer than 15 characters is ignored.
inline void NameThisThread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_THREAD_NAME_H_

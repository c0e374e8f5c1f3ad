#include "engine/checkpoint/disk/concurrent_for.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"

namespace megatrain {

absl::Status ConcurrentFor(int count, int threads, absl::FunctionRef<absl::Status(int done)> go_on,
                           absl::FunctionRef<absl::Status(int index)> work) {
  Mutex mutex;
  absl::Status status;
  int failed = std::numeric_limits<int>::max();  // the index of `status`
  int next = 0, done = 0;
  const auto fail = [&](const absl::Status& error, int index) {
    if (error.ok() || index > failed || (index == failed && !status.ok())) return;
    status = error;
    failed = index;
  };
  const auto run = [&](bool callers) {
    while (true) {
      int index = 0;
      {
        MutexLock lock(&mutex);
        if (callers && status.ok()) fail(go_on(done), std::numeric_limits<int>::max());
        if (!status.ok() || next == count) return;
        index = next++;
      }
      const absl::Status worked = work(index);
      MutexLock lock(&mutex);
      fail(worked, index);
      ++done;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < std::min(threads, count); ++i) others.emplace_back(run, false);
  run(true);
  for (std::thread& other : others) other.join();
  return status;
}

}  // namespace megatrain

// What every use of the engine needs of the machine: threads, device, and the memory there is.
#ifndef MEGATRAIN_ENGINE_SESSION_H_
#define MEGATRAIN_ENGINE_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/job/job_spec.h"
#include "engine/pipeline/memory_plan.h"

namespace megatrain {

struct Session {
  int threads = 1;  // all: compute's and, if set apart, the optimizer's
  std::unique_ptr<ThreadPool> compute_pool;
  std::unique_ptr<ThreadPool> own_update_pool;  // null: the optimizer shares compute's threads
  std::unique_ptr<Device> device;
  MemoryBudget budget;

  ThreadPool* update_pool() const {
    return own_update_pool != nullptr ? own_update_pool.get() : compute_pool.get();
  }
};

// Processors this process may use.
int AvailableProcessors();

// InvalidArgument for a device there is not, or thread counts that contradict each other.
absl::StatusOr<Session> OpenSession(const JobSpec::Engine& engine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_SESSION_H_

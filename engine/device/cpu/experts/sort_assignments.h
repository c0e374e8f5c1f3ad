// Sorts assignments of tokens to experts, on the cpu device (see SortAssignmentsArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_SORT_ASSIGNMENTS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_SORT_ASSIGNMENTS_H_

#include "engine/base/thread_pool.h"
#include "engine/device/kernels.h"

namespace megatrain {

// Returns when the work is done. `pool` must not be null.
void RunSortAssignments(const SortAssignmentsArgs& args, ThreadPool* pool);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_SORT_ASSIGNMENTS_H_

// The gated delta rule on the cpu (see GatedDeltaArgs, engine/device/delta_args.h). Documents and
// key heads are worked on in parallel, and the chunks of a document one after another.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_DELTA_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_DELTA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// Both Run functions return when the work is done.
void RunGatedDelta(const GatedDeltaArgs& args, ThreadPool* pool, WorkspacePool* workspaces);

// Returns InvalidArgument if the workspace is too small.
absl::Status RunGatedDeltaBackward(const GatedDeltaBackwardArgs& args, ThreadPool* pool,
                                   WorkspacePool* workspaces);

// Implements KernelSizes::GatedDeltaBackwardWorkspaceBytes.
int64_t CpuGatedDeltaWorkspaceBytes(const GatedDeltaShape& shape);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_DELTA_H_

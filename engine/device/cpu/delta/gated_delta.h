// The gated delta rule on the cpu device (see GatedDeltaArgs, engine/device/delta_args.h).
// Documents and key heads are computed in parallel, and the chunks of a document one after another.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_DELTA_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_DELTA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// Computes GatedDeltaArgs and returns when the work is done.
void RunGatedDelta(const GatedDeltaArgs& args, ThreadPool* pool, WorkspacePool* workspaces);

// Computes GatedDeltaBackwardArgs and returns when the work is done. Returns InvalidArgument if
// args.workspace_bytes is too small for one key head. CpuGatedDeltaWorkspaceBytes for this shape,
// or for one with more tokens, is always enough.
absl::Status RunGatedDeltaBackward(const GatedDeltaBackwardArgs& args, ThreadPool* pool,
                                   WorkspacePool* workspaces);

// Returns the bytes of GatedDeltaBackwardArgs::workspace that RunGatedDeltaBackward can use. With
// fewer it works on fewer key heads at once.
int64_t CpuGatedDeltaWorkspaceBytes(const GatedDeltaShape& shape);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_GATED_DELTA_H_

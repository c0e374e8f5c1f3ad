// The causal convolution on the cpu device, in parallel over blocks of tokens and channels (see
// CausalConvArgs, engine/device/delta_args.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_CAUSAL_CONV_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_CAUSAL_CONV_H_

#include <cstddef>
#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/delta_args.h"

namespace megatrain {

// A block of work: channels [first, first + count) of tokens [begin, end). `weight` has the weights
// of all channels as FP32 [kernel, channels]. It is here because causal_conv.cc is compiled once
// for each instruction set.
struct ConvBlock {
  int64_t begin, end, first;
  size_t count;
  const float* weight;
};

// Both return when the work is done. `pool` and `workspaces` must not be null.
void RunCausalConv(const CausalConvArgs& args, ThreadPool* pool, WorkspacePool* workspaces);
void RunCausalConvBackward(const CausalConvBackwardArgs& args, ThreadPool* pool,
                           WorkspacePool* workspaces);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_CAUSAL_CONV_H_

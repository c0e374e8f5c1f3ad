// Blocked causal attention inside documents, forward and backward, from single-threaded products
// and the softmax between them. Memory is linear in tokens; blocks that nobody sees are skipped.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// native_bf16: whether BF16 products run as such; else blocks are widened to FP32.
absl::Status RunAttention(const AttentionArgs& args, bool native_bf16, ThreadPool* pool,
                          WorkspacePool* workspaces);
absl::Status RunAttentionBackward(const AttentionBackwardArgs& args, bool native_bf16,
                                  ThreadPool* pool, WorkspacePool* workspaces);

// The backward pass's FP32 sums of dq [heads, tokens, head_dim] and delta [heads, tokens].
int64_t AttentionWorkspaceBytes(int64_t tokens, int64_t heads, int64_t head_dim);

// Host bytes of one task's buffers, at most, for heads of up to kHeadDimMax.
int64_t AttentionScratchBytesMax();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_

// Causal attention within documents for the cpu device, forward and backward. It works in blocks:
// single-threaded products with the softmax between them. Memory is linear in tokens. Blocks in
// which no key is visible are skipped.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// The largest head size.
inline constexpr int64_t kCpuHeadDimMax = 512;

// Both return when the work is done. Errors are InvalidArgument for what CheckAttention
// (attention_blocks.h) refuses and the first of a product (Internal). `native_bf16` says that BF16
// products run natively; otherwise blocks are widened to FP32.
absl::Status RunAttention(const AttentionArgs& args, bool native_bf16, ThreadPool* pool,
                          WorkspacePool* workspaces);
absl::Status RunAttentionBackward(const AttentionBackwardArgs& args, bool native_bf16,
                                  ThreadPool* pool, WorkspacePool* workspaces);

// Computes the attention of single tokens over a cache of keys and values
// (Kernels::CachedAttention), and returns when the work is done. All query heads of a group read a
// key or value together, so that the cache is read from memory once.
void RunCachedAttention(const CachedAttentionArgs& args, ThreadPool* pool,
                        WorkspacePool* workspaces);
// Writes the keys and values of tokens [begin, end) to the cache (Kernels::StoreInCache).
void StoreTokensInCache(const CachedAttentionArgs& args, int64_t begin, int64_t end);

// Returns a head's sink, or -infinity if there are none.
float SinkOf(const AttentionShaping& shaping, DType dtype, int64_t head);

// Returns the bytes of AttentionBackwardArgs::workspace, which holds FP32 sums of dq [heads,
// tokens, head_dim] and delta [heads, tokens].
int64_t AttentionWorkspaceBytes(int64_t tokens, int64_t heads, int64_t head_dim);

// Returns the most host bytes of one task's buffers, for heads of up to kCpuHeadDimMax.
int64_t AttentionScratchBytesMax();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_

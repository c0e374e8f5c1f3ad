// Attention for the cpu device: causal within documents, forward and backward (see AttentionArgs),
// and over a cache (see CachedAttentionArgs). Within documents, blocks of queries and keys are
// computed by single-threaded products, with the softmax between them. Memory is linear in tokens.
// Blocks in which no key is visible are skipped.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// The largest head_dim and value_dim, in elements.
inline constexpr int64_t kCpuHeadDimMax = 512;

// Both return when the work is done. They return InvalidArgument if CheckAttention
// (attention_blocks.h) refuses the arguments, and Internal if a product fails. Without tokens they
// return OK. `native_bf16` is the result of HasNativeBf16 (product.h). If it is false, blocks are
// widened to FP32. The size of args.workspace is not checked.
absl::Status RunAttention(const AttentionArgs& args, bool native_bf16, ThreadPool* pool,
                          WorkspacePool* workspaces);
absl::Status RunAttentionBackward(const AttentionBackwardArgs& args, bool native_bf16,
                                  ThreadPool* pool, WorkspacePool* workspaces);

// Computes the attention of single tokens over a cache of keys and values
// (Kernels::CachedAttention), and returns when the work is done. All query heads that share a head
// of keys and values use a row of the cache together, so that it is read from memory once.
void RunCachedAttention(const CachedAttentionArgs& args, ThreadPool* pool,
                        WorkspacePool* workspaces);
// Writes the keys and values of tokens [begin, end) to the cache (Kernels::StoreInCache). Several
// threads may write different ranges at once.
void StoreTokensInCache(const CachedAttentionArgs& args, int64_t begin, int64_t end);

// Returns a head's sink, which has type `dtype`, or -infinity if there are no sinks.
float SinkOf(const AttentionShaping& shaping, DType dtype, int64_t head);

// Returns the bytes of AttentionBackwardArgs::workspace. It holds FP32 sums of dq [heads, tokens,
// head_dim] and delta = rowsum(dO * O) [heads, tokens].
int64_t AttentionWorkspaceBytes(int64_t tokens, int64_t heads, int64_t head_dim);

// Returns the most host bytes that the buffers of one task take, with heads of up to
// kCpuHeadDimMax. A thread runs one task at a time.
int64_t AttentionScratchBytesMax();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_H_

// Attention of single tokens over a cache of keys and values, for the cpu device. All query heads
// of a group read a key or value together, so that the cache is read once.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_CACHED_ATTENTION_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_CACHED_ATTENTION_H_

#include <cstdint>

#include "engine/device/kernel_args.h"

namespace megatrain {

// Writes the keys and values of tokens [begin, end) to the cache.
void StoreTokensInCache(const CachedAttentionArgs& args, int64_t begin, int64_t end);

// Returns the bytes of the scratch memory for CachedAttentionGroup.
int64_t CachedAttentionScratchBytes(const CachedAttentionArgs& args);
// Computes the output of one token and the query heads that share `kv_head`. `scratch` must be
// aligned to 64 bytes.
void CachedAttentionGroup(const CachedAttentionArgs& args, int64_t token, int64_t kv_head,
                          void* scratch);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_CACHED_ATTENTION_H_

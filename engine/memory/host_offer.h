// What this machine has for a host pool that is yet to be made, and for all beside it.
#ifndef MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_
#define MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/memory/system_memory.h"

namespace megatrain {

struct HostOffer {
  int64_t free_bytes = 0;  // AvailableMemoryBytes: for the pool and for all beside it
  // In huge pages that are set aside and free, of the size of which there is more: for a pool
  // alone. 0 if they are too few for HostPool::MayLieIn.
  int64_t set_aside_bytes = 0;
};

// NotFound or DataLoss as AvailableMemoryBytes.
absl::StatusOr<HostOffer> ReadHostOffer(const SystemMemoryPaths& paths = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_

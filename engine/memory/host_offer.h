// Reads how much memory this machine has for a host pool that is not made yet.
#ifndef MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_
#define MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/memory/system_memory.h"

namespace megatrain {

struct HostOffer {
  int64_t free_bytes = 0;  // AvailableMemoryBytes: for the pool and everything else
  // Bytes of free huge pages that are set aside, of the page size (1 GiB or 2 MiB) that has more.
  // Only the pool can use them. 0 if they are too few for HostPool::MayLieIn.
  int64_t set_aside_bytes = 0;
};

// Returns the errors of AvailableMemoryBytes.
absl::StatusOr<HostOffer> ReadHostOffer(const SystemMemoryPaths& paths = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_

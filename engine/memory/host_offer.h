// Reads how much memory this machine has for a host pool (host_pool.h) that is not made yet.
#ifndef MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_
#define MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/memory/system_memory.h"

namespace megatrain {

struct HostOffer {
  int64_t free_bytes = 0;  // AvailableMemoryBytes; the pool shares it with all other allocations
  // Free bytes of the kernel's reserved huge pages (hugetlb), which only the pool uses: those of
  // 1 GiB or those of 2 MiB, whichever have more bytes. A size does not count if a pool of all its
  // pages may not use it (HostPool::MayLieIn).
  int64_t set_aside_bytes = 0;
};

// Returns the errors of AvailableMemoryBytes.
absl::StatusOr<HostOffer> ReadHostOffer(const SystemMemoryPaths& paths = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_HOST_OFFER_H_

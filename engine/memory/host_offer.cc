#include "engine/memory/host_offer.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/memory/host_pool.h"

namespace megatrain {

absl::StatusOr<HostOffer> ReadHostOffer(const SystemMemoryPaths& paths) {
  HostOffer offer;
  MT_ASSIGN_OR_RETURN(offer.free_bytes, AvailableMemoryBytes(paths));
  for (const int64_t page_bytes : {kGiantPageBytes, kHugePageBytes}) {
    const int64_t bytes = FreeHugePageBytes(page_bytes, paths);
    if (HostPool::MayLieIn(page_bytes, bytes)) {
      offer.set_aside_bytes = std::max(offer.set_aside_bytes, bytes);
    }
  }
  return offer;
}

}  // namespace megatrain

#include "tests/bench/gpu/host_growth.h"

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/memory/host_pool.h"

namespace megatrain {

absl::StatusOr<int64_t> GrowHostMemory(int64_t wanted, const HostGrowth& growth) {
  std::vector<std::unique_ptr<HostPool>> touched;
  absl::Time more_by = absl::Now() + growth.patience;
  while (true) {
    MT_ASSIGN_OR_RETURN(const int64_t free, growth.free_bytes());
    const int64_t held = static_cast<int64_t>(touched.size()) * growth.piece_bytes;
    if (free + held >= wanted) break;
    if (free >= growth.piece_bytes + growth.margin_bytes) {
      HostPoolOptions options;
      options.capacity = growth.piece_bytes;
      options.touch_threads = AvailableProcessors();
      absl::StatusOr<std::unique_ptr<HostPool>> piece = HostPool::Create(options);
      if (!piece.ok()) break;
      touched.push_back(*std::move(piece));
      more_by = absl::Now() + growth.patience;
    } else if (absl::Now() < more_by) {
      absl::SleepFor(absl::Milliseconds(50));
    } else {
      break;
    }
  }
  touched.clear();
  return growth.free_bytes();
}

}  // namespace megatrain

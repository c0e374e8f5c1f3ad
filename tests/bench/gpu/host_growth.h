// A virtual machine may report little memory at first and get more as programs use it. The engine
// takes no more than what is reported free, so the benchmark has the machine grow before.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_HOST_GROWTH_H_
#define MEGATRAIN_TESTS_BENCH_GPU_HOST_GROWTH_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/memory/system_memory.h"

namespace megatrain {

struct HostGrowth {
  // Returns the bytes that are free now.
  std::function<absl::StatusOr<int64_t>()> free_bytes = [] { return AvailableMemoryBytes(); };
  int64_t piece_bytes = int64_t{4} << 30;      // touched at a time
  int64_t margin_bytes = int64_t{4} << 30;     // never touched
  absl::Duration patience = absl::Seconds(3);  // for more, when no piece fits
};

// Touches memory until `wanted` bytes are reported, touched ones among them, or no more come. Gives
// it all back. Returns the bytes that are free then. Touches nothing if `wanted` are free already.
absl::StatusOr<int64_t> GrowHostMemory(int64_t wanted, const HostGrowth& growth = {});

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_HOST_GROWTH_H_

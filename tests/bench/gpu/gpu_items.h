// The items of gpu_bench, on the GPUs of the edge that it is linked with: number 0, or several from
// it on.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_ITEMS_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_ITEMS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tests/bench/gpu/bench_results.h"

namespace megatrain {

struct GpuItemOptions {
  double seconds_max = 0;  // for an item; 0: as long as it takes
  int64_t pool_bytes = 0;  // of host memory for steps; 0: what a step plans
};

// Whether MEGATRAIN_TEST_SIZES asks for sizes that an emulation has done in seconds.
bool SmallGpuSizes();

bool IsGpuItem(const std::string& name);

// Measures the limits first if the results do not have them. DeadlineExceeded: not all of the item
// was measured in time. ResourceExhausted: something of it does not fit this machine.
// FailedPrecondition: it needs several GPUs.
// REQUIRES: IsGpuItem(name).
absl::Status RunGpuItem(const std::string& name, const GpuItemOptions& options,
                        BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_ITEMS_H_

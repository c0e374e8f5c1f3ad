// What the machine is that a run is about: printed, and kept with the results.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_

#include "absl/status/statusor.h"
#include "tests/bench/gpu/bench_results.h"

namespace megatrain {

// Describes host, driver, card and libraries, with their places, and why cuDNN is not used. Returns
// whether it is. Errors as CreateCudaDevice's, and what is missing is described too.
absl::StatusOr<bool> DescribeGpuMachine(BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_

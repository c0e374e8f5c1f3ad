// What the machine is that a run is about: printed, and kept with the results.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_

#include "absl/status/statusor.h"
#include "tests/bench/gpu/bench_results.h"

namespace megatrain {

struct GpuMachine {
  // Whether the libraries are there that no job needs, but for what they are there for: fast
  // attention, and jobs on several GPUs.
  bool cudnn = false, nccl = false;
};

// Describes host, driver, cards, their number and libraries, with their places, and why cuDNN or
// NCCL is not used. Errors as CreateCudaDevice's, and what is missing is described too.
absl::StatusOr<GpuMachine> DescribeGpuMachine(BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_

// Describes the machine that a run is about: prints it, and keeps it with the results.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_

#include "absl/status/statusor.h"
#include "tests/bench/gpu/bench_results.h"

namespace megatrain {

struct GpuMachine {
  // True if the library can be used. Without cuDNN attention is slower, and without NCCL there are
  // no jobs on several GPUs.
  bool cudnn = false, nccl = false;
};

// Describes the host, the driver, the number of GPUs, the first one and the libraries, with their
// places, and why cuDNN or NCCL is not used. Errors as CreateCudaDevice's, and what is missing is
// described too.
absl::StatusOr<GpuMachine> DescribeGpuMachine(BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_INFO_H_

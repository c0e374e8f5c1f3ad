// Measures what GPUs exchange: copies between two of them, which the link bounds, and the
// operations of NCCL's communicators, held against them.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_EXCHANGE_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/gpu_opener.h"
#include "tests/bench/gpu/bench_results.h"

namespace megatrain {

struct GpuExchangeSizes {
  int64_t copy_bytes = int64_t{1} << 28;
  // The sizes of an operation's data, all ranks' parts together: a small tile's, and a large one's.
  std::vector<int64_t> exchange_bytes = {int64_t{1} << 24, int64_t{1} << 28};
  int repetitions = 8;
};

// Measures copies between GPUs 0 and 1. Adds the rate from 1 to 0 alone and that of both ways at
// once to the results, with whether the host is between them. Returns the latter, the slower way's,
// in bytes a second. `api` has both GPUs.
absl::StatusOr<double> MeasurePeerCopies(CudaApi& api, const GpuExchangeSizes& sizes,
                                         BenchResults& results);

// Adds what each of the first `count` GPUs receives of all-gathers and reduce-scatters, the slowest
// GPU's, and its part of `peer_bytes_per_second`.
absl::Status BenchGpuExchange(int count, const GpuOpener& open_gpu, const NcclLoader& load_nccl,
                              double peer_bytes_per_second, const GpuExchangeSizes& sizes,
                              BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_EXCHANGE_H_

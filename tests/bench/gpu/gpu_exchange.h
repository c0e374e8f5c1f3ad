// What GPUs exchange: copies between two of them, which the link bounds, and the operations of
// NCCL's communicators, held against them.
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
  // Of the data of an operation, of all ranks together: a small tile's, and a large one's.
  std::vector<int64_t> exchange_bytes = {int64_t{1} << 24, int64_t{1} << 28};
  int repetitions = 8;
};

// The bytes a second that GPU 0 receives from GPU 1 by copies, and sends meanwhile. Adds both ways
// alone and at once to the results, with whether the host is between them. `api` has both GPUs.
// Returns the slower direction of both at once.
absl::StatusOr<double> MeasurePeerCopies(CudaApi& api, const GpuExchangeSizes& sizes,
                                         BenchResults& results);

// Adds what each of the first `count` GPUs receives of all-gathers and reduce-scatters, the slowest
// GPU's, and its part of `peer_bytes_per_second`.
absl::Status BenchGpuExchange(int count, const GpuOpener& open_gpu, const NcclLoader& load_nccl,
                              double peer_bytes_per_second, const GpuExchangeSizes& sizes,
                              BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_EXCHANGE_H_

// What the card and its link can do: what kernels and steps are held against.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_LIMITS_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_LIMITS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "tests/bench/gpu/bench_results.h"
#include "tests/bench/gpu/gpu_bench_device.h"

namespace megatrain {

struct GpuLimitSizes {
  int64_t product = 8192;  // rows, columns and inner dimension of the largest product
  int64_t copy_bytes = int64_t{1} << 30;
  int repetitions = 10;
  // Of the largest product, until the card draws what it may draw for long.
  int sustained_repetitions = 2000;
  // Of a GpuBenchDevice that they fit in: three square operands in FP32, or two copies.
  int64_t device_bytes() const;
};

struct GpuLimits {
  double copy_bytes_per_second = 0;  // on the device, read and written
  double h2d_bytes_per_second = 0, d2h_bytes_per_second = 0;
  double h2d_beside_d2h_bytes_per_second = 0, d2h_beside_h2d_bytes_per_second = 0;
  double bf16_flops_per_second = 0, fp32_flops_per_second = 0;  // the best of a few sizes

  double flops_per_second(DType dtype) const {
    return dtype == DType::kBF16 ? bf16_flops_per_second : fp32_flops_per_second;
  }
};

// Adds each to the results, whose item is "limits", as it is measured.
absl::StatusOr<GpuLimits> MeasureGpuLimits(GpuBenchDevice& device, const GpuLimitSizes& sizes,
                                           BenchResults& results);
// Those that kernels and steps are held against, measured before. NotFound if they were not.
absl::StatusOr<GpuLimits> MeasuredGpuLimits(const BenchResults& results);

// The host's memory: bytes/s read and written by a copy between two blocks of `bytes` on all of the
// pool's threads, the best of the repetitions. Decides what the optimizer can hide behind.
absl::StatusOr<double> MeasureDramCopy(int64_t bytes, int repetitions, ThreadPool& pool);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_LIMITS_H_

// Each kernel at the shapes of one layer, against what bounds it: products and attention against
// the measured rate of products, all else against the measured copy.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_KERNELS_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tests/bench/gpu/bench_results.h"
#include "tests/bench/gpu/gpu_bench_device.h"
#include "tests/bench/gpu/gpu_limits.h"

namespace megatrain {

// Qwen2.5 7B's layer.
struct GpuKernelShapes {
  int64_t tokens = 4096;
  int64_t hidden = 3584, intermediate = 18944, heads = 28, kv_heads = 4, head_dim = 128;
  int64_t vocabulary = 152064;
  int64_t chunk_tokens = 2048;  // of the head
  int repetitions = 10;

  // Of a GpuBenchDevice.
  int64_t device_bytes() const;
};

// Adds a result a kernel. DeadlineExceeded if the results' item is out of time.
absl::Status BenchGpuKernels(GpuBenchDevice& device, const GpuLimits& limits,
                             const GpuKernelShapes& shapes, BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_KERNELS_H_

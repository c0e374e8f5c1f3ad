#include "tests/bench/gpu/gpu_limits.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/dtype.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

using Queue = GpuBenchDevice::Queue;

void PrintRate(const char* name, double per_second, const char* unit) {
  std::printf("  %-40s %9.1f %s\n", name, per_second, unit);
  std::fflush(stdout);
}

// Of [n, n] = [n, n] [n, n]^T, operands side by side.
absl::StatusOr<double> ProductRate(GpuBenchDevice& device, DType dtype, int64_t n,
                                   int repetitions) {
  const int64_t bytes = n * n * DTypeBytes(dtype);
  MatMulArgs args;
  args.m = args.n = args.k = n;
  args.dtype = args.out_dtype = dtype;
  args.a = device.memory();
  args.b = device.memory() + bytes;
  args.out = device.memory() + 2 * bytes;
  args.a_stride = args.b_stride = args.out_stride = n;
  args.transpose_b = true;
  MT_ASSIGN_OR_RETURN(const double seconds, device.Seconds(Queue::kKernels, repetitions, [&] {
    return device.kernels().MatMul(device.stream(), args);
  }));
  const double side = static_cast<double>(n);
  return 2 * side * side * side / seconds;
}

absl::StatusOr<double> BestProductRate(GpuBenchDevice& device, DType dtype,
                                       const GpuLimitSizes& sizes) {
  double best = 0;
  for (const int64_t n : {sizes.product / 4, sizes.product / 2, sizes.product}) {
    MT_ASSIGN_OR_RETURN(const double rate, ProductRate(device, dtype, n, sizes.repetitions));
    std::printf("  %s products, %6lld cubed %21.1f TFLOP/s\n", DTypeName(dtype),
                static_cast<long long>(n), rate / 1e12);
    std::fflush(stdout);
    best = std::max(best, rate);
  }
  return best;
}

}  // namespace

int64_t GpuLimitSizes::device_bytes() const {
  return std::max(3 * product * product * int64_t{sizeof(float)}, 2 * copy_bytes);
}

absl::StatusOr<GpuLimits> MeasureGpuLimits(GpuBenchDevice& device, const GpuLimitSizes& sizes) {
  GpuLimits limits;
  std::printf("limits\n");
  const double bytes = static_cast<double>(sizes.copy_bytes);
  char* const other = device.memory() + sizes.copy_bytes;
  const auto in = [&] {
    return device.Check(device.api().CopyToDevice(device.queue(Queue::kToDevice), device.memory(),
                                                  device.host(), sizes.copy_bytes),
                        "cudaMemcpyAsync to the device");
  };
  const auto out = [&] {
    return device.Check(
        device.api().CopyToHost(device.queue(Queue::kToHost), device.host() + sizes.copy_bytes,
                                other, sizes.copy_bytes),
        "cudaMemcpyAsync to the host");
  };
  MT_ASSIGN_OR_RETURN(const double copy, device.Seconds(Queue::kKernels, sizes.repetitions, [&] {
    return device.Check(device.api().CopyOnDevice(device.queue(Queue::kKernels), device.memory(),
                                                  other, sizes.copy_bytes),
                        "cudaMemcpyAsync on the device");
  }));
  limits.copy_bytes_per_second = 2 * bytes / copy;
  PrintRate("copy on the device, read and written", limits.copy_bytes_per_second / 1e9, "GB/s");
  MT_ASSIGN_OR_RETURN(const double h2d, device.Seconds(Queue::kToDevice, sizes.repetitions, in));
  limits.h2d_bytes_per_second = bytes / h2d;
  PrintRate("link, host to device", limits.h2d_bytes_per_second / 1e9, "GB/s");
  MT_ASSIGN_OR_RETURN(const double d2h, device.Seconds(Queue::kToHost, sizes.repetitions, out));
  limits.d2h_bytes_per_second = bytes / d2h;
  PrintRate("link, device to host", limits.d2h_bytes_per_second / 1e9, "GB/s");
  MT_ASSIGN_OR_RETURN(
      const GpuBenchDevice::Pair both,
      device.SecondsBeside(Queue::kToDevice, in, Queue::kToHost, out, sizes.repetitions));
  limits.h2d_beside_d2h_bytes_per_second = bytes / both.first;
  limits.d2h_beside_h2d_bytes_per_second = bytes / both.second;
  PrintRate("both at once, host to device", limits.h2d_beside_d2h_bytes_per_second / 1e9, "GB/s");
  PrintRate("both at once, device to host", limits.d2h_beside_h2d_bytes_per_second / 1e9, "GB/s");
  MT_ASSIGN_OR_RETURN(limits.bf16_flops_per_second, BestProductRate(device, DType::kBF16, sizes));
  MT_ASSIGN_OR_RETURN(const double sustained, ProductRate(device, DType::kBF16, sizes.product,
                                                          sizes.sustained_repetitions));
  PrintRate("BF16 products, kept up", sustained / 1e12, "TFLOP/s");
  MT_ASSIGN_OR_RETURN(limits.fp32_flops_per_second, BestProductRate(device, DType::kF32, sizes));
  return limits;
}

}  // namespace megatrain

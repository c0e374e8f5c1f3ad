#include "tests/bench/gpu/gpu_limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

using Queue = GpuBenchDevice::Queue;

constexpr char kItem[] = "limits";
constexpr char kCopy[] = "copy on the device, read and written";
constexpr char kBf16Products[] = "bf16 products, the best";
constexpr char kFp32Products[] = "fp32 products, the best";

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
                                       const GpuLimitSizes& sizes, BenchResults& results) {
  double best = 0;
  for (const int64_t n : {sizes.product / 4, sizes.product / 2, sizes.product}) {
    MT_ASSIGN_OR_RETURN(const double rate, ProductRate(device, dtype, n, sizes.repetitions));
    MT_RETURN_IF_ERROR(results.Add(absl::StrCat(DTypeName(dtype), " products, ", n, " cubed"),
                                   rate / 1e12, "TFLOP/s"));
    best = std::max(best, rate);
  }
  return best;
}

}  // namespace

int64_t GpuLimitSizes::device_bytes() const {
  return std::max(3 * product * product * int64_t{sizeof(float)}, 2 * copy_bytes);
}

absl::StatusOr<GpuLimits> MeasureGpuLimits(GpuBenchDevice& device, const GpuLimitSizes& sizes,
                                           BenchResults& results) {
  GpuLimits limits;
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
  MT_RETURN_IF_ERROR(results.Add(kCopy, limits.copy_bytes_per_second / 1e9, "GB/s"));
  MT_ASSIGN_OR_RETURN(const double h2d, device.Seconds(Queue::kToDevice, sizes.repetitions, in));
  limits.h2d_bytes_per_second = bytes / h2d;
  MT_RETURN_IF_ERROR(
      results.Add("link, host to device", limits.h2d_bytes_per_second / 1e9, "GB/s"));
  MT_ASSIGN_OR_RETURN(const double d2h, device.Seconds(Queue::kToHost, sizes.repetitions, out));
  limits.d2h_bytes_per_second = bytes / d2h;
  MT_RETURN_IF_ERROR(
      results.Add("link, device to host", limits.d2h_bytes_per_second / 1e9, "GB/s"));
  MT_ASSIGN_OR_RETURN(
      const GpuBenchDevice::Pair both,
      device.SecondsBeside(Queue::kToDevice, in, Queue::kToHost, out, sizes.repetitions));
  limits.h2d_beside_d2h_bytes_per_second = bytes / both.first;
  limits.d2h_beside_h2d_bytes_per_second = bytes / both.second;
  MT_RETURN_IF_ERROR(results.Add("both at once, host to device",
                                 limits.h2d_beside_d2h_bytes_per_second / 1e9, "GB/s"));
  MT_RETURN_IF_ERROR(results.Add("both at once, device to host",
                                 limits.d2h_beside_h2d_bytes_per_second / 1e9, "GB/s"));
  MT_ASSIGN_OR_RETURN(limits.bf16_flops_per_second,
                      BestProductRate(device, DType::kBF16, sizes, results));
  MT_RETURN_IF_ERROR(results.Add(kBf16Products, limits.bf16_flops_per_second / 1e12, "TFLOP/s"));
  MT_ASSIGN_OR_RETURN(const double sustained, ProductRate(device, DType::kBF16, sizes.product,
                                                          sizes.sustained_repetitions));
  MT_RETURN_IF_ERROR(results.Add("bf16 products, kept up", sustained / 1e12, "TFLOP/s"));
  MT_ASSIGN_OR_RETURN(limits.fp32_flops_per_second,
                      BestProductRate(device, DType::kF32, sizes, results));
  MT_RETURN_IF_ERROR(results.Add(kFp32Products, limits.fp32_flops_per_second / 1e12, "TFLOP/s"));
  return limits;
}

absl::StatusOr<GpuLimits> MeasuredGpuLimits(const BenchResults& results) {
  GpuLimits limits;
  MT_ASSIGN_OR_RETURN(const double copy, results.Value(kItem, kCopy));
  MT_ASSIGN_OR_RETURN(const double bf16, results.Value(kItem, kBf16Products));
  MT_ASSIGN_OR_RETURN(const double fp32, results.Value(kItem, kFp32Products));
  limits.copy_bytes_per_second = copy * 1e9;
  limits.bf16_flops_per_second = bf16 * 1e12;
  limits.fp32_flops_per_second = fp32 * 1e12;
  return limits;
}

absl::StatusOr<double> MeasureDramCopy(int64_t bytes, int repetitions, ThreadPool& pool) {
  constexpr int64_t kBlockBytes = int64_t{4} << 20;
  const int64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  const size_t size = static_cast<size_t>(blocks * kBlockBytes);
  // Each page is first touched by one of the threads that copy.
  const std::unique_ptr<char[]> from(new (std::nothrow) char[size]),
      to(new (std::nothrow) char[size]);
  if (from == nullptr || to == nullptr) {
    return absl::ResourceExhaustedError("no host memory to measure its rate with");
  }
  double best = 0;
  for (int i = 0; i <= repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool.ParallelFor(blocks, [&](int64_t block) {
      char* const target = to.get() + block * kBlockBytes;
      if (i == 0) {
        std::memset(from.get() + block * kBlockBytes, 1, static_cast<size_t>(kBlockBytes));
        std::memset(target, 1, static_cast<size_t>(kBlockBytes));
      } else {
        std::memcpy(target, from.get() + block * kBlockBytes, static_cast<size_t>(kBlockBytes));
      }
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (i > 0) best = std::max(best, 2 * static_cast<double>(size) / seconds.count());
  }
  return best;
}

}  // namespace megatrain

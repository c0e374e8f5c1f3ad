// The scenarios of gpu_bench over an emulated edge: that they ask for what a card grants, and end.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "engine/base/bytes.h"
#include "tests/bench/gpu/gpu_kernels.h"
#include "tests/bench/gpu/gpu_limits.h"
#include "tests/bench/gpu/gpu_steps.h"
#include "tests/engine/device/cuda/emulated_gpu.h"

namespace megatrain {
namespace {

constexpr GpuLimitSizes kSizes = {
    .product = 16, .copy_bytes = 1 << 16, .repetitions = 2, .sustained_repetitions = 2};

absl::StatusOr<GpuLimits> Limits(CudaApi* api) {
  auto device = GpuBenchDevice::Open(api, 0,
                                     {.device_bytes = kSizes.device_bytes(),
                                      .host_bytes = 2 * kSizes.copy_bytes,
                                      .flush_bytes = 4096});
  if (!device.ok()) return device.status();
  return MeasureGpuLimits(**device, kSizes);
}

TEST(GpuBenchTest, LimitsAndKernels) {
  EmulatedCuda cuda;
  const auto limits = Limits(&cuda);
  ASSERT_TRUE(limits.ok()) << limits.status();
  for (const double rate :
       {limits->copy_bytes_per_second, limits->h2d_bytes_per_second, limits->d2h_bytes_per_second,
        limits->h2d_beside_d2h_bytes_per_second, limits->d2h_beside_h2d_bytes_per_second,
        limits->bf16_flops_per_second, limits->fp32_flops_per_second}) {
    EXPECT_GT(rate, 0);
  }
  const GpuKernelShapes shapes = {.tokens = 16,
                                  .hidden = 32,
                                  .intermediate = 64,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .vocabulary = 64,
                                  .chunk_tokens = 8,
                                  .repetitions = 1};
  const auto device = GpuBenchDevice::Open(
      &cuda, 0,
      {.device_bytes = shapes.device_bytes(), .host_bytes = 1 << 16, .flush_bytes = 4096});
  ASSERT_TRUE(device.ok()) << device.status();
  const absl::Status status = BenchGpuKernels(**device, *limits, shapes);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(GpuBenchTest, AnErrorOfTheCardEndsIt) {
  EmulatedCuda cuda;
  cuda.Fail("CopyOnDevice", 1);
  EXPECT_FALSE(Limits(&cuda).ok());
}

TEST(GpuBenchTest, StepsAndTheLongestSequence) {
  EmulatedGpu gpu({.memory_bytes = 4 * kGiB});
  EngineHostOptions options;
  options.device = "cuda";
  options.threads = 2;
  options.open_gpu = gpu.opener();
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE((*host)->ReservePool(64 * kMiB, nullptr, nullptr).ok());
  const std::string directory = ::testing::TempDir() + "/gpu_bench";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  GpuLimits limits;
  limits.bf16_flops_per_second = limits.fp32_flops_per_second = 1e12;
  const GpuStep tiny = {.preset = "llama-tiny",
                        .sequence_length = 8,
                        .micro_batch = 1,
                        .global_batch = 1,
                        .steps = 3};
  GpuStep large = tiny;
  large.preset = "llama-124m";  // does not fit the pool
  const absl::Status status = BenchGpuSteps(**host, limits, {tiny, large}, directory);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(std::filesystem::exists(directory + "/checkpoints"));
  // Of a model that has no room at all; one that has takes its longest sequence, emulated.
  EXPECT_TRUE(BenchLongestSequence(**host, limits, large, directory).ok());
}

}  // namespace
}  // namespace megatrain

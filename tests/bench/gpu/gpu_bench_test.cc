// The scenarios of gpu_bench over an emulated edge: that they ask for what a card grants, and end.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "engine/base/bytes.h"
#include "tests/bench/gpu/bench_results.h"
#include "tests/bench/gpu/gpu_exchange.h"
#include "tests/bench/gpu/gpu_kernels.h"
#include "tests/bench/gpu/gpu_limits.h"
#include "tests/bench/gpu/gpu_steps.h"
#include "tests/bench/gpu/host_growth.h"
#include "tests/engine/comm/fake_nccl.h"
#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

constexpr GpuLimitSizes kSizes = {
    .product = 16, .copy_bytes = 1 << 16, .repetitions = 2, .sustained_repetitions = 2};

constexpr GpuLimits kLimits = {.bf16_flops_per_second = 1e12, .fp32_flops_per_second = 1e12};

GpuStep TinyStep() {
  return {.preset = "llama-tiny",
          .sequence_length = 8,
          .micro_batch = 1,
          .global_batch = 1,
          .steps = 3};
}

BenchResults Results(const std::string& directory) {
  absl::StatusOr<BenchResults> results = BenchResults::Open(directory);
  EXPECT_TRUE(results.ok()) << results.status();
  return *std::move(results);
}

absl::StatusOr<GpuLimits> Limits(CudaApi* api, BenchResults& results) {
  auto device = GpuBenchDevice::Open(api, 0,
                                     {.device_bytes = kSizes.device_bytes(),
                                      .host_bytes = 2 * kSizes.copy_bytes,
                                      .flush_bytes = 4096});
  if (!device.ok()) return device.status();
  results.Begin("limits", 0);
  return MeasureGpuLimits(**device, kSizes, results);
}

TEST(GpuBenchTest, LimitsAndKernels) {
  EmulatedCuda cuda;
  const std::string directory = FreshDirectory("kernels");
  BenchResults results = Results(directory);
  const auto limits = Limits(&cuda, results);
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
  results.Begin("kernels", 0);
  const absl::Status status = BenchGpuKernels(**device, *limits, shapes, results);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(results.Value("kernels", "BF16, 16 tokens: RMSNorm").ok());
  // Another process goes on with them.
  const BenchResults again = Results(directory);
  EXPECT_EQ(again.Table(), results.Table());
  const auto read = MeasuredGpuLimits(again);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_NEAR(read->bf16_flops_per_second, limits->bf16_flops_per_second,
              1e-9 * limits->bf16_flops_per_second);
  results.Begin("kernels", 1e-9);
  EXPECT_EQ(BenchGpuKernels(**device, *limits, shapes, results).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(GpuBenchTest, AnErrorOfTheCardEndsIt) {
  EmulatedCuda cuda;
  cuda.Fail("CopyOnDevice", 1);
  BenchResults results = Results("");
  EXPECT_FALSE(Limits(&cuda, results).ok());
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
  const std::string directory = FreshDirectory("gpu_bench");
  BenchResults results = Results(directory);
  results.Begin("step", 0);
  GpuStep large = TinyStep();
  large.preset = "llama-124m";  // does not fit the pool
  const absl::Status status = BenchGpuStep(**host, kLimits, TinyStep(), directory, results);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(results.Value("step", "llama-tiny bf16, 1 x 8 tokens, clipped: speed").ok())
      << results.Table();
  EXPECT_NE(results.Table().find(", layer forward 0."), std::string::npos) << results.Table();
  EXPECT_FALSE(std::filesystem::exists(directory + "/checkpoints"));
  EXPECT_TRUE(absl::IsResourceExhausted(BenchGpuStep(**host, kLimits, large, directory, results)));
  EXPECT_NE(results.Table().find("llama-124m bf16, 1 x 8 tokens, clipped: not measured"),
            std::string::npos);
  // Of a model that has no room at all; one that has takes its longest sequence, emulated.
  EXPECT_TRUE(
      absl::IsResourceExhausted(BenchLongestSequence(**host, kLimits, large, directory, results)));
  // A step that is begun is finished, and counts if it is one of those that are counted.
  results.Begin("late", 1e-9);
  EXPECT_EQ(BenchGpuStep(**host, kLimits, TinyStep(), directory, results).code(),
            absl::StatusCode::kDeadlineExceeded);
}

// Without a pool, as the benchmark's steps have none before they plan. The cpu's rates are measured
// in a second, an emulated GPU's in minutes.
TEST(GpuBenchTest, ThePlanIsToldBesideTheStep) {
  EngineHostOptions options;
  options.device = "cpu";
  options.threads = 2;
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE((*host)->MeasureRates().ok());
  const std::string directory = FreshDirectory("planned");
  BenchResults results = Results(directory);
  results.Begin("step", 0);
  const absl::Status status = BenchGpuStep(**host, kLimits, TinyStep(), directory, results);
  EXPECT_TRUE(status.ok()) << status;
  const auto over =
      results.Value("step", "llama-tiny bf16, 1 x 8 tokens, clipped: step over the plan's");
  ASSERT_TRUE(over.ok()) << results.Table();
  EXPECT_GT(*over, 0);
}

TEST(GpuBenchTest, WhatGpusExchange) {
  BenchResults results = Results(FreshDirectory("exchange"));
  results.Begin("exchange", 0);
  const GpuExchangeSizes sizes = {
      .copy_bytes = 1 << 16, .exchange_bytes = {1 << 12, 1 << 14}, .repetitions = 2};
  EmulatedCuda cuda({.devices = 2});
  const auto peer = MeasurePeerCopies(cuda, sizes, results);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_GT(*peer, 0);
  EXPECT_EQ(results.Table().find("through the host"), std::string::npos);
  EmulatedGpu gpu({.devices = 3});
  FakeNcclLoader nccl(3);
  const absl::Status status =
      BenchGpuExchange(3, gpu.opener(), nccl.loader(), *peer, sizes, results);
  EXPECT_TRUE(status.ok()) << status;
  for (const char* operation : {"all-gather", "reduce-scatter"}) {
    for (const char* size : {"4.00 KiB", "16.00 KiB"}) {
      const std::string name =
          std::string(operation) + " of " + size + " by 3 GPUs, received by each";
      const auto rate = results.Value("exchange", name);
      ASSERT_TRUE(rate.ok()) << results.Table();
      EXPECT_GT(*rate, 0);
    }
  }
  // GPUs that do not reach each other, and one that fails while the others wait for it.
  cuda.Fail("EnablePeerAccess", kNotTaken);
  EXPECT_TRUE(MeasurePeerCopies(cuda, sizes, results).ok());
  EXPECT_NE(results.Table().find("through the host"), std::string::npos);
  const GpuOpener fails = [&](int ordinal) {
    auto device = gpu.opener()(ordinal);
    if (ordinal == 1) gpu.edge(1).Fail("EventRecord", 9, /*after=*/3);
    return device;
  };
  EXPECT_FALSE(BenchGpuExchange(3, fails, nccl.loader(), *peer, sizes, results).ok());
}

TEST(GpuBenchTest, TheHostsMemoryHasARate) {
  ThreadPool pool(2);
  const auto rate = MeasureDramCopy(1 << 20, /*repetitions=*/1, pool);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 0);
}

TEST(GpuBenchTest, AMachineGivesMoreMemoryAsItIsUsed) {
  int64_t total = 20 * kMiB, asked = 0;
  HostGrowth growth;
  growth.piece_bytes = 4 * kMiB;
  growth.margin_bytes = 8 * kMiB;
  growth.patience = absl::ZeroDuration();
  // Each question is one more piece that was touched, and the machine gives two for it.
  growth.free_bytes = [&]() -> absl::StatusOr<int64_t> {
    return (total += 8 * kMiB) - 4 * kMiB * asked++;
  };
  absl::StatusOr<int64_t> free = GrowHostMemory(64 * kMiB, growth);
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_EQ(asked, 7);  // 28 MiB, then 8 more each time up to 68, and once more at the end

  // One that gives no more is left with its margin.
  int64_t given = 0;
  growth.free_bytes = [&]() -> absl::StatusOr<int64_t> { return 20 * kMiB - 4 * kMiB * given++; };
  ASSERT_TRUE(GrowHostMemory(64 * kMiB, growth).ok());
  EXPECT_EQ(given, 4 + 1);  // three pieces, until 8 MiB are left

  asked = 0;
  growth.free_bytes = [&]() -> absl::StatusOr<int64_t> { return ++asked * kMiB; };
  EXPECT_EQ(*GrowHostMemory(1, growth), 2 * kMiB);  // nothing to do
}

TEST(GpuBenchTest, ResultsThatAreReplacedAndSteps) {
  const std::string directory = FreshDirectory("results");
  BenchResults results = Results(directory);
  results.Begin("item", 0);
  ASSERT_TRUE(results.Add("speed", 1, "m/s").ok());
  ASSERT_TRUE(results.Add("speed", 2, "m/s", "a|b").ok());
  ASSERT_TRUE(results.AddStep("check", "kernels", "failed", 1.5, "\xff\n").ok());
  EXPECT_EQ(*results.Value("item", "speed"), 2);
  EXPECT_EQ(Results(directory).Table(),
            "\n| what | benchmark | must reach | measured |\n|---|---|---|---|\n"
            "| speed | `gpu_bench item` | | 2 m/s; a\\|b |\n"
            "\n| phase | step | outcome | seconds | |\n|---|---|---|---|---|\n"
            "| check | kernels | failed | 1.5 | \xef\xbf\xbd  |\n");
  std::ofstream(directory + "/results.json") << "{";
  EXPECT_EQ(BenchResults::Open(directory).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace megatrain

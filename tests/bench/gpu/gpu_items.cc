#include "tests/bench/gpu/gpu_items.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/bytes.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/comm/nccl_api.h"
#include "engine/engine.h"
#include "engine/memory/host_offer.h"
#include "tests/bench/gpu/gpu_bench_device.h"
#include "tests/bench/gpu/gpu_exchange.h"
#include "tests/bench/gpu/gpu_kernels.h"
#include "tests/bench/gpu/gpu_limits.h"
#include "tests/bench/gpu/gpu_steps.h"
#include "tests/bench/gpu/host_growth.h"
#include "tests/gpu/gpu_under_test.h"

namespace megatrain {
namespace {

constexpr int kOrdinal = 0;
// The largest of these steps plans so much host memory at most (7 billion parameters, several
// sweeps).
constexpr int64_t kStepHostBytes = 116 * kGiB;
constexpr char kLimits[] = "limits", kKernels[] = "kernels", kSteps[] = "steps", kLong[] = "long";
constexpr char k7B[] = "7b", k1500M[] = "1.5b", k32k[] = "32k";
constexpr char kExchange[] = "exchange", kDevices[] = "devices";  // of several GPUs
constexpr const char* kItems[] = {kLimits,   k7B,      kKernels, k1500M, k32k,
                                  kExchange, kDevices, kSteps,   kLong};

GpuLimitSizes LimitSizes() {
  if (!SmallGpuSizes()) return {};
  return {.product = 16, .copy_bytes = 1 << 16, .repetitions = 2, .sustained_repetitions = 2};
}

GpuKernelShapes KernelShapes() {
  if (!SmallGpuSizes()) return {};
  return {.tokens = 16,
          .hidden = 32,
          .intermediate = 64,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .vocabulary = 64,
          .chunk_tokens = 8,
          .repetitions = 1};
}

GpuStep StepOf(const std::string& item) {
  if (SmallGpuSizes()) {
    return {.preset = "llama-tiny",
            .sequence_length = 8,
            .micro_batch = 1,
            .global_batch = 1,
            .steps = 3};
  }
  return item == k7B ? Clipped7BStep() : item == k1500M ? Clipped1500MStep() : LongSequenceStep();
}

// Removed with the object.
struct TemporaryDirectory {
  explicit TemporaryDirectory(const std::string& item)
      : path(std::filesystem::temp_directory_path() /
             absl::StrCat("megatrain_gpu_bench_", item, "_", getpid())) {
    std::filesystem::create_directories(path);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::string path;
};

absl::StatusOr<std::unique_ptr<GpuBenchDevice>> OpenBenchDevice(CudaApi* api, int64_t device_bytes,
                                                                int64_t host_bytes) {
  GpuBenchDevice::Sizes sizes = {.device_bytes = device_bytes, .host_bytes = host_bytes};
  if (SmallGpuSizes()) sizes.flush_bytes = 4096;
  return GpuBenchDevice::Open(api, kOrdinal, sizes);
}

absl::StatusOr<GpuLimits> MeasureLimits(BenchResults& results) {
  const GpuLimitSizes sizes = LimitSizes();
  const std::unique_ptr<CudaApi> api = OpenCudaApi();
  MT_RETURN_IF_ERROR(FindCudaDevice(api.get(), kOrdinal).status());
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<GpuBenchDevice> device,
                      OpenBenchDevice(api.get(), sizes.device_bytes(), 2 * sizes.copy_bytes));
  MT_ASSIGN_OR_RETURN(const GpuLimits limits, MeasureGpuLimits(*device, sizes, results));
  const std::vector<Processor> processors = AllowedProcessors();
  ThreadPool pool(AvailableProcessors(), processors);
  MT_ASSIGN_OR_RETURN(const double dram,
                      MeasureDramCopy(sizes.copy_bytes, sizes.repetitions, pool));
  MT_RETURN_IF_ERROR(results.Add("host memory, copied, read and written", dram / 1e9, "GB/s",
                                 absl::StrCat(pool.threads(), " threads")));
  return limits;
}

absl::StatusOr<std::unique_ptr<EngineHost>> OpenHost(const GpuItemOptions& options,
                                                     int devices = 1) {
  EngineHostOptions host_options;
  host_options.device = absl::StrCat("cuda:", kOrdinal);
  host_options.open_gpu = OpenGpuUnderTest;
  host_options.devices = devices;
  host_options.load_nccl = LoadNccl;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<EngineHost> host, EngineHost::Create(host_options));
  // A job's plan takes measured rates; without them it goes by rule.
  const absl::Time begin = absl::Now();
  if (!SmallGpuSizes()) MT_RETURN_IF_ERROR(host->MeasureRates());
  const absl::Time measured = absl::Now();
  if (options.pool_bytes > 0) {
    MT_RETURN_IF_ERROR(host->ReservePool(options.pool_bytes, nullptr, nullptr));
  }
  std::printf("  rates measured in %.1f s, pool reserved in %.1f s\n",
              absl::ToDoubleSeconds(measured - begin),
              absl::ToDoubleSeconds(absl::Now() - measured));
  std::fflush(stdout);
  return host;
}

// Those that do not fit are told at the end.
absl::Status RunOtherSteps(const GpuItemOptions& options, const GpuLimits& limits,
                           const std::string& directory, BenchResults& results) {
  absl::Status all;
  const std::vector<GpuStep> steps =
      SmallGpuSizes() ? std::vector{StepOf(kSteps)} : OtherGpuSteps();
  for (const GpuStep& step : steps) {
    if (results.out_of_time()) return absl::DeadlineExceededError("out of time before all steps");
    // A host without a pool reserves what its first job plans: each has its own.
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host, OpenHost(options));
    const absl::Status status = BenchGpuStep(*host, limits, step, directory, results);
    if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
    all.Update(status);
  }
  return all;
}

// Two GPUs and all. FailedPrecondition: there is one.
absl::StatusOr<std::vector<int>> SeveralGpus() {
  const int all = SeveralGpusUnderTest();
  if (all < 2) return absl::FailedPreconditionError("needs two GPUs, has one");
  return all == 2 ? std::vector{2} : std::vector{2, all};
}

absl::Status RunExchange(BenchResults& results) {
  MT_ASSIGN_OR_RETURN(const std::vector<int> counts, SeveralGpus());
  GpuExchangeSizes sizes;
  if (SmallGpuSizes()) sizes = {.copy_bytes = 1 << 16, .exchange_bytes = {1 << 12}};
  double peer = 0;
  {
    const std::unique_ptr<CudaApi> api = OpenCudaApi();
    MT_ASSIGN_OR_RETURN(peer, MeasurePeerCopies(*api, sizes, results));
  }
  for (const int count : counts) {
    MT_RETURN_IF_ERROR(BenchGpuExchange(count, OpenGpuUnderTest, LoadNccl, peer, sizes, results));
  }
  return absl::OkStatus();
}

absl::Status RunDevices(const GpuItemOptions& options, const GpuLimits& limits,
                        const std::string& directory, BenchResults& results) {
  MT_ASSIGN_OR_RETURN(std::vector<int> counts, SeveralGpus());
  GpuStep step = StepOf(k1500M);
  step.global_batch = std::max<int64_t>(step.global_batch, counts.back() * step.micro_batch);
  counts.insert(counts.begin(), 1);
  double alone = 0;  // tokens/s
  for (const int count : counts) {
    step.devices = count;
    {
      MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host, OpenHost(options, count));
      MT_RETURN_IF_ERROR(BenchGpuStep(*host, limits, step, directory, results));
    }
    MT_ASSIGN_OR_RETURN(const double speed,
                        results.Value(kDevices, absl::StrCat(GpuStepName(step), kGpuStepSpeed)));
    if (count == 1) {
      alone = speed;
      continue;
    }
    MT_RETURN_IF_ERROR(
        results.Add(absl::StrCat("step of ", count, " GPUs over 1/", count, " of one GPU's"),
                    alone * count / speed, ""));
  }
  return absl::OkStatus();
}

absl::Status RunLongest(GpuItemOptions options, const GpuLimits& limits,
                        const std::string& directory, BenchResults& results) {
  if (options.pool_bytes == 0) {
    MT_ASSIGN_OR_RETURN(const HostOffer offer, ReadHostOffer());
    options.pool_bytes = std::max(offer.free_bytes / 10 * 9, offer.set_aside_bytes);
  }
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host, OpenHost(options));
  const GpuStep step = {.preset = "qwen2.5-7b", .sequence_length = 4096};
  return BenchLongestSequence(*host, limits, step, directory, results);
}

}  // namespace

bool SmallGpuSizes() {
  const char* const sizes = std::getenv("MEGATRAIN_TEST_SIZES");
  return sizes != nullptr && std::string_view(sizes) == "small";
}

bool IsGpuItem(const std::string& name) {
  return std::find(std::begin(kItems), std::end(kItems), name) != std::end(kItems);
}

absl::Status RunGpuItem(const std::string& name, const GpuItemOptions& options,
                        BenchResults& results) {
  absl::StatusOr<GpuLimits> limits = MeasuredGpuLimits(results);
  if (name == kLimits || !limits.ok()) {
    results.Begin(kLimits, options.seconds_max);
    limits = MeasureLimits(results);
    if (name == kLimits || !limits.ok()) return limits.status();
  }
  results.Begin(name, options.seconds_max);
  if (name == kKernels) {
    const GpuKernelShapes shapes = KernelShapes();
    const std::unique_ptr<CudaApi> api = OpenCudaApi();
    MT_RETURN_IF_ERROR(FindCudaDevice(api.get(), kOrdinal).status());
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<GpuBenchDevice> device,
                        OpenBenchDevice(api.get(), shapes.device_bytes(),
                                        SmallGpuSizes() ? int64_t{1} << 16 : int64_t{64} << 20));
    return BenchGpuKernels(*device, *limits, shapes, results);
  }
  if (name == kExchange) return RunExchange(results);
  if (!SmallGpuSizes()) {
    const absl::Time begin = absl::Now();
    MT_ASSIGN_OR_RETURN(const int64_t free,
                        GrowHostMemory(std::max(options.pool_bytes, kStepHostBytes)));
    std::printf("  host memory: %s free, after %.1f s\n", FormatBytesShort(free).c_str(),
                absl::ToDoubleSeconds(absl::Now() - begin));
    std::fflush(stdout);
  }
  const TemporaryDirectory directory(name);
  if (name == kDevices) return RunDevices(options, *limits, directory.path, results);
  if (name == kSteps) return RunOtherSteps(options, *limits, directory.path, results);
  if (name == kLong) return RunLongest(options, *limits, directory.path, results);
  std::vector<GpuStep> steps = {StepOf(name)};
  // Whether it pays that the plan leaves a part of AdamW to the device, and whether AdamW on all
  // processors keeps the threads waiting that give the device its work.
  if (name == k1500M) {
    GpuStep step = steps.front();
    step.update_device = UpdateDevice::kHost;
    steps.push_back(step);
    step = steps.front();
    step.threads = std::max(1, AvailableProcessors() - 2);
    steps.push_back(step);
  }
  for (const GpuStep& step : steps) {
    if (&step != steps.data() && results.out_of_time()) {
      return results.Note(absl::StrCat(GpuStepName(step), ": not measured"), "out of time");
    }
    // A host without a pool reserves what its first job plans.
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host, OpenHost(options));
    const absl::Status status = BenchGpuStep(*host, *limits, step, directory.path, results);
    const bool is_late = absl::IsDeadlineExceeded(status) && &step != steps.data();
    if (!status.ok() && !is_late) return status;
  }
  return absl::OkStatus();
}

}  // namespace megatrain

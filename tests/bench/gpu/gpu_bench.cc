// gpu_bench [limits] [kernels] [steps] [long]: what a GPU can do, and how close the kernels and
// whole training steps come to it. Without a word: everything. Needs a GPU; takes 90% of the free
// host memory for the steps (the state of 7 billion parameters is 99 GiB), and the temporary
// directory for models and tokens (megabytes).
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "engine/base/status.h"
#include "engine/device/cuda/cuda_api.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "engine/memory/host_offer.h"
#include "tests/bench/gpu/gpu_kernels.h"
#include "tests/bench/gpu/gpu_limits.h"
#include "tests/bench/gpu/gpu_steps.h"

namespace megatrain {
namespace {

constexpr int kOrdinal = 0;

// Removed with the object.
struct TemporaryDirectory {
  TemporaryDirectory() { std::filesystem::create_directories(path); }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::string path = std::filesystem::temp_directory_path() / "megatrain_gpu_bench";
};

absl::Status Run(const std::set<std::string>& scenarios) {
  const auto asked = [&](const char* name) {
    return scenarios.empty() || scenarios.count(name) > 0;
  };
  const std::unique_ptr<CudaApi> api = OpenCudaApi();
  MT_ASSIGN_OR_RETURN(const CudaDeviceProperties properties, FindCudaDevice(api.get(), kOrdinal));
  std::printf("%s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n",
              properties.name.c_str(), properties.major, properties.minor,
              properties.multiprocessors,
              static_cast<double>(properties.memory_bytes) / (int64_t{1} << 30));
  // All else is told as a part of them.
  const GpuLimitSizes sizes;
  GpuLimits limits;
  {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<GpuBenchDevice> device,
                        GpuBenchDevice::Open(api.get(), kOrdinal,
                                             {.device_bytes = sizes.device_bytes(),
                                              .host_bytes = 2 * sizes.copy_bytes}));
    MT_ASSIGN_OR_RETURN(limits, MeasureGpuLimits(*device, sizes));
  }
  if (asked("kernels")) {
    const GpuKernelShapes shapes;
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<GpuBenchDevice> device,
                        GpuBenchDevice::Open(api.get(), kOrdinal,
                                             {.device_bytes = shapes.device_bytes(),
                                              .host_bytes = int64_t{64} << 20}));
    MT_RETURN_IF_ERROR(BenchGpuKernels(*device, limits, shapes));
  }
  if (!asked("steps") && !asked("long")) return absl::OkStatus();
  EngineHostOptions options;
  options.device = "cuda:" + std::to_string(kOrdinal);
  options.open_gpu = OpenCudaDevice;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host, EngineHost::Create(options));
  MT_ASSIGN_OR_RETURN(const HostOffer offer, ReadHostOffer());
  const int64_t pool_bytes = std::max(offer.free_bytes / 10 * 9, offer.set_aside_bytes);
  MT_RETURN_IF_ERROR(host->ReservePool(pool_bytes, nullptr, nullptr));
  std::printf("steps; host pool: %s\n", host->DescribePool().c_str());
  const TemporaryDirectory directory;
  if (asked("steps")) {
    MT_RETURN_IF_ERROR(BenchGpuSteps(*host, limits, DefaultGpuSteps(), directory.path));
  }
  if (asked("long")) {
    MT_RETURN_IF_ERROR(BenchLongestSequence(
        *host, limits, {.preset = "qwen2.5-7b", .sequence_length = 4096}, directory.path));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  std::set<std::string> scenarios(argv + 1, argv + argc);
  for (const std::string& scenario : scenarios) {
    if (scenario == "limits" || scenario == "kernels" || scenario == "steps" ||
        scenario == "long") {
      continue;
    }
    std::fprintf(stderr, "usage: gpu_bench [limits] [kernels] [steps] [long]\n");
    return 2;
  }
  const absl::Status status = megatrain::Run(scenarios);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

#include "tests/bench/gpu/gpu_info.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/base/processors.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/cuda/cuda_status.h"
#include "engine/memory/host_offer.h"
#include "tests/bench/gpu/gpu_items.h"
#include "tests/bench/gpu/gpu_limits.h"
#include "tests/gpu/gpu_under_test.h"

namespace megatrain {
namespace {

absl::Status DescribeHost(BenchResults& results) {
  ThreadPool pool(AvailableProcessors(), AllowedProcessors());
  MT_RETURN_IF_ERROR(results.Describe("processors", absl::StrCat(pool.threads())));
  MT_ASSIGN_OR_RETURN(const HostOffer offer, ReadHostOffer());
  MT_RETURN_IF_ERROR(results.Describe(
      "host memory", absl::StrCat(FormatBytesShort(offer.free_bytes), " free, ",
                                  FormatBytesShort(offer.set_aside_bytes), " in huge pages")));
  const int64_t copy_bytes = SmallGpuSizes() ? 8 * kMiB : 256 * kMiB;
  MT_ASSIGN_OR_RETURN(const double rate, MeasureDramCopy(copy_bytes, /*repetitions=*/3, pool));
  return results.Describe("DRAM", absl::StrFormat("%.1f GB/s copied, read and written, %d threads",
                                                  rate / 1e9, pool.threads()));
}

std::string VersionText(int version) {
  return version == 0 ? "none" : absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::Status DescribeCard(CudaApi& api, BenchResults& results) {
  int driver = 0, runtime = 0;
  const int error = api.Versions(&driver, &runtime);
  MT_RETURN_IF_ERROR(results.Describe(
      "driver", error != 0 ? api.Describe(error)
                           : absl::StrCat("CUDA ", VersionText(driver), "; this program's runtime ",
                                          VersionText(runtime))));
  MT_ASSIGN_OR_RETURN(const CudaDeviceProperties card, FindCudaDevice(&api, 0));
  MT_RETURN_IF_ERROR(results.Describe("GPUs", absl::StrCat(CountGpusUnderTest())));
  MT_RETURN_IF_ERROR(CudaStatus(api, api.SetDevice(0), "cudaSetDevice"));
  int64_t free_bytes = 0, total_bytes = 0;
  MT_RETURN_IF_ERROR(CudaStatus(api, api.MemoryInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
  return results.Describe(
      "card", absl::StrFormat("%s, compute capability %d.%d, %d multiprocessors, %s, %s free",
                              card.name, card.major, card.minor, card.multiprocessors,
                              FormatBytesShort(card.memory_bytes), FormatBytesShort(free_bytes)));
}

}  // namespace

absl::StatusOr<GpuMachine> DescribeGpuMachine(BenchResults& results) {
  MT_RETURN_IF_ERROR(DescribeHost(results));
  const std::unique_ptr<CudaApi> api = OpenCudaApi();
  const absl::Status card = DescribeCard(*api, results);
  if (!card.ok()) {
    MT_RETURN_IF_ERROR(results.Describe("card", std::string(card.message())));
    return card;
  }
  MT_ASSIGN_OR_RETURN(const CudaSwitches switches, ReadCudaSwitches());
  const absl::Status loaded = api->LoadLibraries(switches);
  if (!loaded.ok()) {
    MT_RETURN_IF_ERROR(results.Describe("libraries", std::string(loaded.message())));
    return loaded;
  }
  GpuMachine machine;
  for (const CudaLibrary& library : api->Libraries()) {
    const bool used = !library.version.empty();
    MT_RETURN_IF_ERROR(results.Describe(
        library.name, absl::StrCat(used ? library.version : "not used", ": ", library.place)));
    if (library.name == kCudnn) machine.cudnn = used;
  }
  const absl::StatusOr<std::unique_ptr<NcclApi>> nccl = LoadNccl();
  machine.nccl = nccl.ok();
  MT_RETURN_IF_ERROR(
      results.Describe("NCCL", nccl.ok() ? (*nccl)->Library()
                                         : absl::StrCat("not used: ", nccl.status().message())));
  return machine;
}

}  // namespace megatrain

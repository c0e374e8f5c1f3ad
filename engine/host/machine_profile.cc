#include "engine/host/machine_profile.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace megatrain {
namespace {

// The shares of a data sheet's numbers that programs reach. Good libraries of matrix products reach
// about 80% (790 of an H200's 989 TFLOP/s), fused attention about half, its gradient a sixth less
// (581 against 688 TFLOP/s on an H200), kernels that stream memory 90%, and AdamW over a host's
// memory channels about 70%.
constexpr double kProducts = 0.8;
constexpr double kAttention = 0.5;
constexpr double kAttentionBackward = 0.42;
constexpr double kMemory = 0.9;
constexpr double kHostMemory = 0.7;

// The time from one short kernel to the next, launched through a library by one thread.
constexpr double kLaunchSeconds = 4e-6;

// The share of a link's direction that is left while the other is used too.
constexpr double kBothWays = 0.8;
// One direction of a link of 16 lanes, which has 64 and 32 GB/s on paper.
constexpr double kPcie5 = 55e9;
constexpr double kPcie4 = 25e9;
// One direction between devices, of 450 GB/s (NVLink 4) and 300 GB/s (NVLink 3) on paper, of which
// collectives of large messages reach about 80%. Cards without it go through the host's memory.
constexpr double kNvlink4 = 360e9;
constexpr double kNvlink3 = 240e9;
constexpr double kThroughHost = kPcie4 / 2;

struct Sheet {
  const char* name;
  const char* device;
  // The sheet's memory, less one or two for what the driver and a program's context hold.
  int64_t device_gibibytes;
  double bf16_teraflops;  // dense, summed in FP32
  double fp32_teraflops;  // without tensor cores
  double memory_terabytes_per_second;
  const char* link;
  double h2d_bytes_per_second;
  double d2h_bytes_per_second;
  double collective_bytes_per_second;
  // The host it is usually found in: its memory's channels together, and processors.
  double host_gigabytes_per_second;
  int threads;
};

constexpr Sheet kSheets[] = {
    {"h200", "NVIDIA H200 SXM", 139, 989, 67, 4.8, "PCIe 5.0 x16", kPcie5, kPcie5, kNvlink4, 460,
     96},
    {"h100", "NVIDIA H100 SXM 80 GB", 78, 989, 67, 3.35, "PCIe 5.0 x16", kPcie5, kPcie5, kNvlink4,
     460, 96},
    {"gh200", "NVIDIA GH200 96 GB", 94, 989, 67, 4.0, "NVLink-C2C", 350e9, 300e9, kNvlink4, 500,
     72},
    {"a100", "NVIDIA A100 SXM 80 GB", 78, 312, 19.5, 2.0, "PCIe 4.0 x16", kPcie4, kPcie4, kNvlink3,
     200, 64},
    {"rtx4090", "NVIDIA RTX 4090", 22, 165, 82, 1.0, "PCIe 4.0 x16", kPcie4, kPcie4, kThroughHost,
     90, 32},
};

MachineProfile FromSheet(const Sheet& sheet) {
  MachineProfile profile;
  profile.name = sheet.name;
  profile.device_bytes = sheet.device_gibibytes << 30;
  profile.description = absl::StrFormat(
      "%s, %d GiB free, %s, in a host with %.0f GB/s of memory and %d threads", sheet.device,
      sheet.device_gibibytes, sheet.link, sheet.host_gigabytes_per_second, sheet.threads);
  const auto rates = [&sheet](double teraflops) {
    PrecisionRates of;
    of.matmul_flops_per_second = kProducts * teraflops * 1e12;
    of.attention_flops_per_second = kAttention * teraflops * 1e12;
    of.attention_backward_flops_per_second = kAttentionBackward * teraflops * 1e12;
    of.element_bytes_per_second = kMemory * sheet.memory_terabytes_per_second * 1e12;
    of.update_bytes_per_second = kHostMemory * sheet.host_gigabytes_per_second * 1e9;
    return of;
  };
  profile.rates.bf16 = rates(sheet.bf16_teraflops);
  profile.rates.fp32 = rates(sheet.fp32_teraflops);
  profile.rates.h2d_bytes_per_second = sheet.h2d_bytes_per_second;
  profile.rates.d2h_bytes_per_second = sheet.d2h_bytes_per_second;
  profile.rates.h2d_beside_d2h_bytes_per_second = kBothWays * sheet.h2d_bytes_per_second;
  profile.rates.d2h_beside_h2d_bytes_per_second = kBothWays * sheet.d2h_bytes_per_second;
  profile.rates.host_memory_bytes_per_second = profile.rates.bf16.update_bytes_per_second;
  profile.rates.collective_bytes_per_second = sheet.collective_bytes_per_second;
  profile.rates.launch_seconds = kLaunchSeconds;
  profile.rates.threads = sheet.threads;
  return profile;
}

}  // namespace

std::vector<std::string> MachineProfileNames() {
  std::vector<std::string> names;
  for (const Sheet& sheet : kSheets) names.push_back(sheet.name);
  return names;
}

absl::StatusOr<MachineProfile> FindMachineProfile(const std::string& name) {
  for (const Sheet& sheet : kSheets) {
    if (name == sheet.name) return FromSheet(sheet);
  }
  return absl::InvalidArgumentError(absl::StrCat("--profile: ", name, " is not known; there are ",
                                                 absl::StrJoin(MachineProfileNames(), ", ")));
}

}  // namespace megatrain

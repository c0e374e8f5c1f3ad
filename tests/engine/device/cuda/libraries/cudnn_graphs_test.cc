// That cuDNN has the graphs that attention is cut into, and that they take no more memory than is
// reserved for them, on an H200: built from the device's properties, without one.
#include "engine/device/cuda/libraries/cudnn_graphs.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cudnn_blocks.h"
#include "engine/device/cuda/libraries/cudnn_choice.h"
#include "engine/device/cuda/libraries/cudnn_sizes.h"

namespace megatrain {
namespace {

// cuDNN's names for what cudaGetDeviceProperties says. Limits are those of compute capability 9.0
// in the CUDA programming guide's table; multiprocessors, memory, clocks and the cache are an
// H200's (SXM). 900 is the capability, 13000 the driver's version of CUDA.
constexpr char kH200[] = R"({
  "deviceName": "NVIDIA H200",
  "deviceVer": 900,
  "driverVer": 13000,
  "cudaDeviceId": 0,
  "pciDeviceId": 0,
  "isTccDriver": 0,
  "supportCoopLaunch": 1,
  "multiProcessorCount": 132,
  "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535],
  "maxBlockSize": [1024, 1024, 64],
  "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048,
  "maxCtasPerSM": 32,
  "regsPerBlock": 65536,
  "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024,
  "l2CacheSize": 52428800,
  "totalGlobalMem": 150754820096,
  "smClockRateKHz": 1980000,
  "memClockRateKHz": 3201000
})";
constexpr int kCapability = 90;

absl::StatusOr<std::unique_ptr<CudnnGraphs>> OpenForH200() {
  // cuDNN finds it by its name, which is the driver's.
  if (dlopen("tests/engine/device/cuda/libraries/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ==
      nullptr) {
    return absl::InternalError(dlerror());
  }
  return CudnnGraphs::OpenFor(kH200, kCapability);
}

struct Case {
  std::string name;
  CudnnGraphKey key;
  std::string refusal = "";  // what cuDNN says where there is no graph; empty: there is one
};

void PrintTo(const Case& graph, std::ostream* out) { *out << graph.name; }

// q, k and v lie side by side, of a layer with twice as many heads as a call has.
CudnnGraphKey Key(bool backward, bool packed, int64_t documents, int64_t length, int64_t kv_heads,
                  int64_t head_dim, int64_t value_dim = 0) {
  constexpr int64_t kGroup = 4;
  if (value_dim == 0) value_dim = head_dim;
  const int64_t heads = kGroup * kv_heads;
  const int64_t token = 2 * ((heads + kv_heads) * head_dim + kv_heads * value_dim);
  CudnnGraphKey key{.backward = backward,
                    .packed = packed,
                    .documents = documents,
                    .length = length,
                    .heads = heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .value_dim = value_dim,
                    .q_stride = token,
                    .k_stride = token,
                    .v_stride = token,
                    .out_stride = 2 * heads * value_dim,
                    .scale = 0.125f};
  if (backward) key.dq_stride = key.dk_stride = key.dv_stride = token;
  if (!packed) key.statistics_stride = documents * length;
  return key;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int64_t head_dim : {64, 96, 128, 256}) {
    const std::string of = "HeadsOf" + std::to_string(head_dim);
    cases.push_back({"Forward" + of, Key(false, false, 3, 1024, 2, head_dim)});
    cases.push_back({"Gradient" + of, Key(true, false, 1, 1024, 2, head_dim)});
    cases.push_back({"PackedForward" + of, Key(false, true, 4, 1024, 2, head_dim)});
    cases.push_back({"PackedGradient" + of, Key(true, true, 4, 1024, 2, head_dim)});
  }
  // Heads that are a multiple of 8 only, as many documents as there may be, and as long ones.
  cases.push_back({"PackedForwardHeadsOf40", Key(false, true, 2, 512, 2, 40)});
  cases.push_back({"PackedGradientHeadsOf40", Key(true, true, 2, 512, 2, 40)});
  cases.push_back({"PackedForwardMany", Key(false, true, cuda::kPackedDocumentsMax, 512, 2, 128)});
  cases.push_back({"PackedGradientLong", Key(true, true, 1, 10'240, 1, 128)});
  cases.push_back({"PackedForwardLong", Key(false, true, 1, 131'072, 2, 128)});
  // Values that are narrower than keys.
  for (const auto& [head_dim, value_dim] : {std::pair{192, 128}, {128, 64}, {40, 24}}) {
    const std::string of = "HeadsOf" + std::to_string(head_dim) + "And" + std::to_string(value_dim);
    cases.push_back({"Forward" + of, Key(false, false, 3, 1024, 2, head_dim, value_dim)});
    cases.push_back({"Gradient" + of, Key(true, false, 1, 1024, 2, head_dim, value_dim)});
    cases.push_back({"PackedForward" + of, Key(false, true, 4, 1024, 2, head_dim, value_dim)});
    cases.push_back({"PackedGradient" + of, Key(true, true, 4, 1024, 2, head_dim, value_dim)});
  }
  // Windows.
  for (const int64_t head_dim : {64, 256}) {
    for (const bool backward : {false, true}) {
      for (const bool packed : {false, true}) {
        CudnnGraphKey key = Key(backward, packed, backward && !packed ? 1 : 3, 1024, 2, head_dim);
        key.window = 300;
        cases.push_back({std::string(packed ? "Packed" : "") +
                             (backward ? "GradientHeadsOf" : "ForwardHeadsOf") +
                             std::to_string(head_dim) + "InAWindow",
                         key});
      }
    }
  }
  // What is not to be had: such calls are for our own kernels.
  cases.push_back({"GradientHeadsOf264", Key(true, true, 1, 512, 1, 264), "256"});
  cases.push_back({"PackedForwardHeadsOf20", Key(false, true, 1, 512, 1, 20), "multiple of 8"});
  return cases;
}

class CudnnGraphsTest : public testing::TestWithParam<Case> {};

TEST_P(CudnnGraphsTest, IsThereAndTakesNoMoreThanIsReserved) {
  const auto cudnn = OpenForH200();
  if (absl::IsUnavailable(cudnn.status())) GTEST_SKIP() << cudnn.status().message();
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();

  const CudnnGraphKey& key = GetParam().key;
  const absl::StatusOr<std::unique_ptr<CudnnGraph>> made = (*cudnn)->Make(key);
  if (!GetParam().refusal.empty()) {
    EXPECT_THAT(made.status().ToString(), testing::HasSubstr(GetParam().refusal));
    return;
  }
  ASSERT_TRUE(made.ok()) << made.status();

  const int64_t tokens = key.documents * key.length;
  const int64_t statistics = tokens * key.heads * int64_t{sizeof(float)};
  constexpr int64_t kAlignments = 3 * 256;
  int64_t reserved = kProductWorkspaceBytes, taken = (*made)->workspace_bytes() + kAlignments;
  if (key.packed) taken += statistics + cuda::kPackedIndexBytes;
  if (key.backward) {
    reserved = CudnnGradientBytes(key.documents, key.heads, key.length, key.head_dim);
  } else if (key.packed) {
    reserved = CudnnPackedForwardBytes(tokens, key.heads);
  }
  EXPECT_LE(taken, reserved);
  std::printf("%s: %lld bytes of cuDNN's, %lld with ours, %lld reserved\n", GetParam().name.c_str(),
              static_cast<long long>((*made)->workspace_bytes()), static_cast<long long>(taken),
              static_cast<long long>(reserved));
}

// One document of so many tokens in a layer, too long for one call of the gradient.
struct LongCase {
  std::string name;
  int32_t tokens;
  int64_t heads, kv_heads, head_dim, value_dim;
};

void PrintTo(const LongCase& layer, std::ostream* out) { *out << layer.name; }

class CudnnBlockGraphsTest : public testing::TestWithParam<LongCase> {};

TEST_P(CudnnBlockGraphsTest, AreThereAndFitBesideTheSums) {
  const auto cudnn = OpenForH200();
  if (absl::IsUnavailable(cudnn.status())) GTEST_SKIP() << cudnn.status().message();
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();

  const LongCase& layer = GetParam();
  const std::vector<int32_t> starts = {0, layer.tokens};
  AttentionBackwardArgs args;
  AttentionArgs& f = args.forward;
  f.dtype = DType::kBF16;
  f.tokens = layer.tokens;
  f.heads = layer.heads;
  f.kv_heads = layer.kv_heads;
  f.head_dim = layer.head_dim;
  f.value_dim = layer.value_dim;
  f.scale = 0.125f;
  f.document_starts = starts.data();
  f.documents = 1;
  f.q_stride = f.k_stride = f.v_stride =
      (layer.heads + layer.kv_heads) * layer.head_dim + layer.kv_heads * layer.value_dim;
  args.dq_stride = args.dk_stride = args.dv_stride = f.q_stride;
  args.workspace_bytes = CudaKernelSizes().AttentionBackwardWorkspaceBytes(
      {DType::kBF16, f.tokens, f.tokens, f.heads, f.kv_heads, f.head_dim, f.value_dim});
  ASSERT_LE(args.workspace_bytes, kCudnnWorkspaceBytesMax);

  const std::vector<DocumentRun> runs = RunsOf(args, /*takes_packed=*/true);
  ASSERT_EQ(runs.size(), 1u);
  ASSERT_TRUE(runs[0].in_blocks());
  const std::vector<CudnnGraphKey> keys = KeysOfRun(args, runs[0]);
  EXPECT_EQ(keys.size(), 2u);
  const int64_t left = CudnnBlockWorkspace(args, runs[0]).rest_bytes;
  for (const CudnnGraphKey& key : keys) {
    const absl::StatusOr<std::unique_ptr<CudnnGraph>> made = (*cudnn)->Make(key);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_LE((*made)->workspace_bytes(), left);
    std::printf("%s: blocks of %lld%s: %lld bytes of cuDNN's, %lld of ours, %lld given\n",
                layer.name.c_str(), static_cast<long long>(key.length),
                key.causal ? ", causal" : "", static_cast<long long>((*made)->workspace_bytes()),
                static_cast<long long>(args.workspace_bytes - left),
                static_cast<long long>(args.workspace_bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(H200, CudnnBlockGraphsTest,
                         testing::Values(LongCase{"SevenHeadsAKey16k", 16'384, 28, 4, 128, 128},
                                         LongCase{"SevenHeadsAKey32k", 32'768, 28, 4, 128, 128},
                                         LongCase{"SevenHeadsAKey128k", 131'072, 28, 4, 128, 128},
                                         LongCase{"FourHeadsAKey128k", 131'072, 32, 8, 128, 128},
                                         LongCase{"AHeadAKey32k", 32'768, 32, 32, 128, 128},
                                         LongCase{"FourHeadsOf256AKey32k", 32'768, 16, 4, 256, 256},
                                         LongCase{"AHeadOf192And128AKey32k", 32'768, 32, 32, 192,
                                                  128}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(H200, CudnnGraphsTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatrain

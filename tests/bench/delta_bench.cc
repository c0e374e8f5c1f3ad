// The gated delta net's kernels on the cpu device, at Qwen3-Next's shape: 2,048 tokens of one
// document, 16 key heads and 32 value heads of 128.
//   bazel run //tests/bench:delta_bench -- [THREADS] [ROUNDS]
//   delta_bench --serve THREADS
// The first prints the median milliseconds of each kernel. The second reads lines "fp32 forward",
// "bf16 backward" and so on, and answers with the seconds of one call of the delta rule
// (delta_vs_torch.py).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/device/device.h"
#include "tests/bench/kernel_timing.h"

namespace megatrain {
namespace {

constexpr int64_t kTokens = 2048, kKeyHeads = 16, kValueHeads = 32, kDim = 128, kKernel = 4;
constexpr int64_t kKeys = kKeyHeads * kDim, kValues = kValueHeads * kDim;
constexpr int64_t kChannels = 2 * kKeys + kValues;

// Random elements of a type.
class Elements {
 public:
  Elements(DType dtype, int64_t n) : dtype_(dtype), bytes_(static_cast<size_t>(n * 4)) {
    std::mt19937 random(static_cast<unsigned>(n));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n; ++i) {
      const float value = normal(random);
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(bytes_.data())[i] = value;
      } else {
        reinterpret_cast<bf16_t*>(bytes_.data())[i] = FloatToBf16(value);
      }
    }
  }
  char* at(int64_t element) { return bytes_.data() + element * DTypeBytes(dtype_); }
  float* floats() { return reinterpret_cast<float*>(bytes_.data()); }

 private:
  const DType dtype_;
  std::vector<char> bytes_;
};

class Bench {
 public:
  Bench(int threads, DType dtype)
      : dtype_(dtype),
        pool_(threads),
        kernels_(&pool_),
        bounds_(static_cast<size_t>(2 * kTokens)),
        workspace_(static_cast<size_t>(kernels_.GatedDeltaBackwardWorkspaceBytes(
            {kTokens, kKeyHeads, kValueHeads, kDim, kDim}))),
        x_(dtype, kTokens * kChannels),
        qkv_(dtype, kTokens * kChannels),
        dqkv_(dtype, kTokens * kChannels),
        ba_(dtype, kTokens * 2 * kValueHeads),
        dba_(dtype, kTokens * 2 * kValueHeads),
        z_(dtype, kTokens * kValues),
        dz_(dtype, kTokens * kValues),
        out_(dtype, kTokens * kValues),
        dout_(dtype, kTokens * kValues),
        small_(dtype, kChannels * kKernel),
        gradients_(DType::kF32, kChannels * kKernel) {
    for (size_t t = 0; t < static_cast<size_t>(kTokens); ++t) bounds_[2 * t + 1] = kTokens;
  }

  double Seconds(const std::string& kernel) {
    const std::function<absl::Status()> call = CallOf(kernel);
    const auto start = std::chrono::steady_clock::now();
    Check(call());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void Run(int rounds) {
    std::printf("\n%s, %d threads, medians of %d; the gradient's workspace has %.0f MiB\n",
                DTypeName(dtype_), pool_.threads(), rounds,
                static_cast<double>(workspace_.size()) / (1 << 20));
    for (const char* kernel :
         {"conv", "conv backward", "forward", "backward", "norm", "norm backward"}) {
      std::vector<double> seconds;
      for (int i = -1; i < rounds; ++i) {  // the first warms up
        seconds.push_back(Seconds(kernel));
        if (i < 0) seconds.clear();
      }
      std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
      std::printf("  %-14s %8.2f ms\n", kernel, seconds[static_cast<size_t>(rounds / 2)] * 1e3);
    }
  }

 private:
  std::function<absl::Status()> CallOf(const std::string& kernel) {
    const DeltaDocuments documents{kTokens, 1, starts_, bounds_.data()};
    const CausalConvArgs conv{.dtype = dtype_,
                              .documents = documents,
                              .channels = kChannels,
                              .kernel = kKernel,
                              .x = x_.at(0),
                              .x_stride = kChannels,
                              .weight = small_.at(0),
                              .y = qkv_.at(0),
                              .y_stride = kChannels};
    const GatedDeltaArgs delta{.dtype = dtype_,
                               .documents = documents,
                               .key_heads = kKeyHeads,
                               .value_heads = kValueHeads,
                               .key_dim = kDim,
                               .value_dim = kDim,
                               .q = qkv_.at(0),
                               .q_stride = kChannels,
                               .k = qkv_.at(kKeys),
                               .k_stride = kChannels,
                               .v = qkv_.at(2 * kKeys),
                               .v_stride = kChannels,
                               .a = ba_.at(kValueHeads),
                               .a_stride = 2 * kValueHeads,
                               .b = ba_.at(0),
                               .b_stride = 2 * kValueHeads,
                               .a_log = small_.at(0),
                               .dt_bias = small_.at(kValueHeads),
                               .out = out_.at(0)};
    const GatedNormArgs norm{.dtype = dtype_,
                             .tokens = kTokens,
                             .heads = kValueHeads,
                             .head_dim = kDim,
                             .epsilon = 1e-6f,
                             .x = out_.at(0),
                             .weight = small_.at(0),
                             .gate = z_.at(0),
                             .gate_stride = kValues,
                             .out = dout_.at(0)};
    if (kernel == "conv") return [=, this] { return kernels_.CausalConv(stream_, conv); };
    if (kernel == "forward") return [=, this] { return kernels_.GatedDelta(stream_, delta); };
    if (kernel == "norm") return [=, this] { return kernels_.GatedNorm(stream_, norm); };
    if (kernel == "conv backward") {
      return [=, this] {
        return kernels_.CausalConvBackward(stream_, {.forward = conv,
                                                     .dy = qkv_.at(0),
                                                     .dy_stride = kChannels,
                                                     .dx = dqkv_.at(0),
                                                     .dx_stride = kChannels,
                                                     .dweight = gradients_.floats()});
      };
    }
    if (kernel == "backward") {
      return [=, this] {
        return kernels_.GatedDeltaBackward(
            stream_, {.forward = delta,
                      .dout = dout_.at(0),
                      .dq = dqkv_.at(0),
                      .dq_stride = kChannels,
                      .dk = dqkv_.at(kKeys),
                      .dk_stride = kChannels,
                      .dv = dqkv_.at(2 * kKeys),
                      .dv_stride = kChannels,
                      .da = dba_.at(kValueHeads),
                      .da_stride = 2 * kValueHeads,
                      .db = dba_.at(0),
                      .db_stride = 2 * kValueHeads,
                      .da_log = gradients_.floats(),
                      .ddt_bias = gradients_.floats() + kValueHeads,
                      .workspace = workspace_.data(),
                      .workspace_bytes = static_cast<int64_t>(workspace_.size())});
      };
    }
    return [=, this] {
      return kernels_.GatedNormBackward(stream_, {.forward = norm,
                                                  .dout = dout_.at(0),
                                                  .dx = out_.at(0),
                                                  .dgate = dz_.at(0),
                                                  .dgate_stride = kValues,
                                                  .dweight = gradients_.floats()});
    };
  }

  const DType dtype_;
  ThreadPool pool_;
  CpuKernels kernels_;
  NoStream stream_;
  const int32_t starts_[2] = {0, kTokens};
  std::vector<int32_t> bounds_;
  std::vector<char> workspace_;
  Elements x_, qkv_, dqkv_, ba_, dba_, z_, dz_, out_, dout_, small_, gradients_;
};

void Serve(int threads) {
  Bench fp32(threads, DType::kF32), bf16(threads, DType::kBF16);
  std::string precision, kernel;
  while (std::cin >> precision >> kernel) {
    std::printf("%.9f\n", (precision == "fp32" ? fp32 : bf16).Seconds(kernel));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise;
  };
  if (argc > 1 && std::string(argv[1]) == "--serve") {
    megatrain::Serve(number(2, 2));
    return 0;
  }
  for (const megatrain::DType dtype : {megatrain::DType::kF32, megatrain::DType::kBF16}) {
    megatrain::Bench(number(1, 2), dtype).Run(number(2, 5));
  }
  return 0;
}

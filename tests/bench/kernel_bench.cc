// How fast the cpu device's kernels are, each beside what bounds it, in one run:
//   bazel run //tests/bench:kernel_bench -- [THREADS] [ROUNDS] [wall|cpu]
// With DNNL_MAX_CPU_ISA=AVX2 or AVX512_CORE as on processors without native BF16.
// `cpu` counts processor time instead, which a busy machine disturbs less (one thread only).
// Products are given as a share of the best product measured in the same run, element-wise kernels
// as a share of a copy's bytes per second; the last lines add up one training step of a Llama of
// hidden 768, 12 layers, intermediate 2048, a tied vocabulary of 32,000, sequence 1024, batch 8.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/device/device.h"
#include "tests/bench/kernel_timing.h"

namespace megatrain {
namespace {

constexpr int64_t kHidden = 768, kIntermediate = 2048, kQkv = 2304, kVocabulary = 32000;
constexpr int64_t kLayers = 12, kHeads = 12, kHeadDim = 64, kSequence = 1024, kBatch = 8;
constexpr int64_t kTokens = kSequence * kBatch, kHeadChunk = 1024;

class Bench {
 public:
  Bench(const TimingArguments& arguments, DType dtype)
      : rounds_(arguments.rounds),
        stopwatch_(arguments.clock, arguments.rounds),
        dtype_(dtype),
        pool_(arguments.threads),
        kernels_(&pool_) {}

  // Returns the tokens a second of the step that the kernels add up to.
  double Run() {
    std::printf("\n%s, %d threads, medians of %d\n", DTypeName(dtype_), pool_.threads(), rounds_);
    Products();
    Copy();
    Attention();
    Elementwise();
    const double total = product_seconds_ + other_seconds_;
    std::printf(
        "a step: products %.3f s, other kernels %.3f s, total/products %.3f, %.0f tokens/s\n",
        product_seconds_, other_seconds_, total / product_seconds_, kTokens / total);
    return kTokens / total;
  }

 private:
  double Product(int64_t m, int64_t n, int64_t k, bool ta, bool tb, DType out_dtype, bool add) {
    const std::vector<char> a = RandomValues(dtype_, m * k), b = RandomValues(dtype_, n * k);
    std::vector<char> out(static_cast<size_t>(m * n * DTypeBytes(out_dtype)));
    return stopwatch_.MedianSeconds([&] {
      return kernels_.MatMul(stream_, {.m = m,
                                       .n = n,
                                       .k = k,
                                       .dtype = dtype_,
                                       .out_dtype = out_dtype,
                                       .a = a.data(),
                                       .a_stride = ta ? m : k,
                                       .transpose_a = ta,
                                       .b = b.data(),
                                       .b_stride = tb ? k : n,
                                       .transpose_b = tb,
                                       .out = out.data(),
                                       .out_stride = n,
                                       .addend = add ? out.data() : nullptr});
    });
  }

  // Forward Y = X W^T, dX = dY W, dW += dY^T X of a weight [out, in], `times` a step.
  void Layer(const char* name, int64_t tokens, int64_t out, int64_t in, DType y_dtype,
             double times) {
    struct Kind {
      const char* name;
      double seconds;
    };
    const Kind kinds[] = {{"Y", Product(tokens, out, in, false, true, y_dtype, false)},
                          {"dX", Product(tokens, in, out, false, false, dtype_, false)},
                          {"dW", Product(out, in, tokens, true, false, DType::kF32, true)}};
    for (const Kind& kind : kinds) {
      const double flops = 2.0 * static_cast<double>(tokens * out * in);
      std::printf("  %-10s %-2s %5ld tokens %5ld x %5ld %8.0f GFLOP/s  %.2f of the best\n", name,
                  kind.name, static_cast<long>(tokens), static_cast<long>(out),
                  static_cast<long>(in), flops / kind.seconds * 1e-9, flops / kind.seconds / peak_);
      product_seconds_ += times * kind.seconds;
    }
  }

  void Products() {
    for (int64_t size : {512, 1024, 1536}) {
      const double flops = 2.0 * static_cast<double>(size * size * size);
      peak_ = std::max(peak_, flops / Product(size, size, size, false, false, DType::kF32, false));
    }
    std::printf("  best square product %.0f GFLOP/s\n", peak_ * 1e-9);
    const double layers = kLayers;
    Layer("qkv", kTokens, kQkv, kHidden, dtype_, layers);
    Layer("out", kTokens, kHidden, kHidden, dtype_, layers);
    Layer("gate_up", kTokens, 2 * kIntermediate, kHidden, dtype_, layers);
    Layer("down", kTokens, kHidden, kIntermediate, dtype_, layers);
    Layer("head", kHeadChunk, kVocabulary, kHidden, DType::kF32,
          static_cast<double>(kTokens) / kHeadChunk);
  }

  void Copy() {
    const int64_t bytes = int64_t{1} << 27;
    std::vector<char> from(static_cast<size_t>(bytes), 1), to(static_cast<size_t>(bytes));
    const double seconds = stopwatch_.MedianSeconds([&] {
      pool_.ParallelFor(bytes >> 18, [&](int64_t block) {
        std::memcpy(&to[static_cast<size_t>(block) << 18], &from[static_cast<size_t>(block) << 18],
                    size_t{1} << 18);
      });
      return absl::OkStatus();
    });
    copy_ = 2.0 * static_cast<double>(bytes) / seconds;
    std::printf("  copy %.1f GB/s\n", copy_ * 1e-9);
  }

  struct AttentionSeconds {
    double forward = 0, backward = 0;
  };

  // Attention over kTokens tokens in documents of one length.
  AttentionSeconds TimeAttention(int64_t length, const AttentionShaping& shaping) {
    const int64_t width = kHeads * kHeadDim;
    const std::vector<char> qkv = RandomValues(dtype_, kTokens * kQkv);
    const std::vector<char> dout = RandomValues(dtype_, kTokens * width);
    std::vector<char> out(dout.size()), dqkv(qkv.size());
    std::vector<float> lse(static_cast<size_t>(kTokens * kHeads));
    std::vector<char> workspace(
        static_cast<size_t>(kernels_.AttentionBackwardWorkspaceBytes({.dtype = dtype_,
                                                                      .tokens = kTokens,
                                                                      .sequence = length,
                                                                      .heads = kHeads,
                                                                      .kv_heads = kHeads,
                                                                      .head_dim = kHeadDim,
                                                                      .value_dim = kHeadDim})));
    std::vector<int32_t> starts;
    for (int64_t start = 0; start <= kTokens; start += length) {
      starts.push_back(static_cast<int32_t>(start));
    }
    const size_t part = static_cast<size_t>(width * DTypeBytes(dtype_));
    const AttentionArgs args{.dtype = dtype_,
                             .tokens = kTokens,
                             .heads = kHeads,
                             .kv_heads = kHeads,
                             .head_dim = kHeadDim,
                             .value_dim = kHeadDim,
                             .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim)),
                             .shaping = shaping,
                             .document_starts = starts.data(),
                             .documents = static_cast<int64_t>(starts.size()) - 1,
                             .q = qkv.data(),
                             .q_stride = kQkv,
                             .k = qkv.data() + part,
                             .k_stride = kQkv,
                             .v = qkv.data() + 2 * part,
                             .v_stride = kQkv,
                             .out = out.data(),
                             .lse = lse.data()};
    AttentionSeconds seconds;
    seconds.forward = stopwatch_.MedianSeconds([&] { return kernels_.Attention(stream_, args); });
    seconds.backward = stopwatch_.MedianSeconds([&] {
      return kernels_.AttentionBackward(stream_, {.forward = args,
                                                  .dout = dout.data(),
                                                  .dq = dqkv.data(),
                                                  .dq_stride = kQkv,
                                                  .dk = dqkv.data() + part,
                                                  .dk_stride = kQkv,
                                                  .dv = dqkv.data() + 2 * part,
                                                  .dv_stride = kQkv,
                                                  .workspace = workspace.data()});
    });
    return seconds;
  }

  void Attention() {
    const auto [forward, backward] = TimeAttention(kSequence, {});
    // Visible pairs alone: two products of head_dim forward, five backward.
    const double flops = 2.0 * static_cast<double>(kTokens * kHeads * kHeadDim) *
                         static_cast<double>(kSequence + 1) / 2;
    std::printf("  attention %.2f + %.2f = %.2f us a token and layer, %.2f and %.2f of the best\n",
                forward / kTokens * 1e6, backward / kTokens * 1e6,
                (forward + backward) / kTokens * 1e6, 2 * flops / forward / peak_,
                5 * flops / backward / peak_);
    other_seconds_ += kLayers * (forward + backward);
    // One long document, beside full attention in the same run.
    constexpr int64_t kWindow = 1024;
    const AttentionSeconds full = TimeAttention(kTokens, {});
    for (const auto& [name, shaping] :
         {std::pair<const char*, AttentionShaping>{"window 1024", {.window = kWindow}},
          {"softcap", {.softcap = 50}},
          {"window 1024 and softcap", {.window = kWindow, .softcap = 50}}}) {
      const AttentionSeconds shaped = TimeAttention(kTokens, shaping);
      std::printf(
          "  attention of %ld tokens, %s: %.2f and %.2f of full attention's %.2f + %.2f s\n",
          static_cast<long>(kTokens), name, shaped.forward / full.forward,
          shaped.backward / full.backward, full.forward, full.backward);
    }
  }

  // `bytes` read and written by one call; `times` calls a step.
  void Report(const char* name, double bytes, double times,
              const std::function<absl::Status()>& call) {
    const double seconds = stopwatch_.MedianSeconds(call);
    std::printf("  %-18s %6.2f ms %7.1f GB/s  %.2f of a copy\n", name, seconds * 1e3,
                bytes / seconds * 1e-9, bytes / seconds / copy_);
    other_seconds_ += times * seconds;
  }

  void Elementwise() {
    const double element = static_cast<double>(DTypeBytes(dtype_));
    const double tokens = static_cast<double>(kTokens);
    std::vector<char> x = RandomValues(dtype_, kTokens * kHidden), y = x, dy = x;
    std::vector<char> weight = RandomValues(dtype_, kHidden);
    std::vector<float> rstd(static_cast<size_t>(kTokens), 1.0f), dweight(kHidden);
    const double norms = 2 * kLayers + 1;
    Report("rms norm", tokens * kHidden * element * 2, norms, [&] {
      return kernels_.RmsNorm(stream_, {dtype_, kTokens, 1, kHidden, 1e-5f, x.data(), kHidden,
                                        weight.data(), y.data(), kHidden, rstd.data()});
    });
    Report("rms norm backward", tokens * kHidden * element * 4, norms, [&] {
      std::memcpy(y.data(), x.data(), 4096);
      return kernels_.RmsNormBackward(
          stream_, {dtype_, kTokens, 1, kHidden, x.data(), kHidden, weight.data(), rstd.data(),
                    dy.data(), kHidden, y.data(), kHidden, true, dweight.data()});
    });
    std::vector<char> qkv = RandomValues(dtype_, kTokens * kQkv);
    std::vector<int32_t> positions(static_cast<size_t>(kTokens));
    for (size_t t = 0; t < positions.size(); ++t)
      positions[t] = static_cast<int32_t>(t % kSequence);
    std::vector<float> cosine(static_cast<size_t>(kSequence * kHeadDim / 2), 0.6f);
    std::vector<float> sine(cosine.size(), 0.8f);
    Report("rope", tokens * 2 * kHidden * element * 2, 2 * kLayers, [&] {
      return kernels_.Rope(
          stream_, {dtype_, kTokens, 2 * kHeads, kHeadDim, kHeadDim, false, qkv.data(), kQkv,
                    positions.data(), cosine.data(), sine.data(), false});
    });
    std::vector<char> gate_up = RandomValues(dtype_, kTokens * 2 * kIntermediate);
    std::vector<char> act = RandomValues(dtype_, kTokens * kIntermediate), dgate_up = gate_up;
    Report("glu", tokens * kIntermediate * element * 3, kLayers, [&] {
      return kernels_.Glu(stream_, {dtype_, kTokens, kIntermediate, gate_up.data(), act.data()});
    });
    Report("glu backward", tokens * kIntermediate * element * 6, kLayers, [&] {
      return kernels_.GluBackward(
          stream_, {dtype_, kTokens, kIntermediate, gate_up.data(), act.data(), dgate_up.data()});
    });
    // Units of other families, which are not part of the step.
    for (const auto& [name, activation] :
         {std::pair{"gelu", GluActivation::kGeluTanh}, {"clamped", GluActivation::kClampedSilu}}) {
      Report(name, tokens * kIntermediate * element * 3, 0, [&, kind = activation] {
        return kernels_.Glu(stream_, {dtype_, kTokens, kIntermediate, gate_up.data(), act.data(),
                                      kind, 7.0f, 1.702f});
      });
      Report(name, tokens * kIntermediate * element * 6, 0, [&, kind = activation] {
        return kernels_.GluBackward(stream_, {dtype_, kTokens, kIntermediate, gate_up.data(),
                                              act.data(), dgate_up.data(), kind, 7.0f, 1.702f});
      });
    }
    Report("sigmoid gate", tokens * kHidden * element * 3, 0, [&] {
      return kernels_.SigmoidGate(stream_, {dtype_, kTokens, kHeads, kHeadDim, x.data(), qkv.data(),
                                            kQkv, 2 * kHeadDim, y.data()});
    });
    Report("rope of neighbours", tokens * 2 * kHidden * element * 2, 0, [&] {
      return kernels_.Rope(stream_,
                           {dtype_, kTokens, 2 * kHeads, kHeadDim, kHeadDim, true, qkv.data(), kQkv,
                            positions.data(), cosine.data(), sine.data(), false});
    });
    std::vector<float> logits(static_cast<size_t>(kHeadChunk * kVocabulary), 0.5f);
    std::vector<int32_t> labels(static_cast<size_t>(kHeadChunk), 17);
    std::vector<float> losses(labels.size());
    Report("cross entropy", kHeadChunk * kVocabulary * (4 + element), tokens / kHeadChunk, [&] {
      return kernels_.CrossEntropy(
          stream_, {dtype_, kHeadChunk, kVocabulary, logits.data(), kVocabulary, labels.data(),
                    1e-3f, nullptr, false, losses.data()});
    });
    Report("cross entropy, cap", kHeadChunk * kVocabulary * (4 + element), 0, [&] {
      return kernels_.CrossEntropy(
          stream_, {dtype_, kHeadChunk, kVocabulary, logits.data(), kVocabulary, labels.data(),
                    1e-3f, nullptr, false, losses.data(), 30.0f});
    });
    std::vector<int32_t> ids(static_cast<size_t>(kTokens)), sorted(ids.size());
    std::minstd_rand random(2);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabulary);
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
      return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
    });
    std::vector<char> table = RandomValues(dtype_, kVocabulary * kHidden);
    std::vector<float> dtable(static_cast<size_t>(kVocabulary * kHidden));
    Report("embedding", tokens * kHidden * element * 2, 1, [&] {
      return kernels_.Embedding(
          stream_, {dtype_, kTokens, kHidden, kVocabulary, ids.data(), table.data(), x.data()});
    });
    Report("embedding backward", tokens * kHidden * (element + 8), 1, [&] {
      return kernels_.EmbeddingBackward(stream_, {dtype_, kTokens, kHidden, kVocabulary, ids.data(),
                                                  sorted.data(), dy.data(), dtable.data()});
    });
    const int64_t table_elements = kVocabulary * kHidden;
    const double tables = 110e6 / static_cast<double>(table_elements);  // of the model's parameters
    double sum = 0;
    Report("sum of squares", static_cast<double>(table_elements) * 4, tables,
           [&] { return kernels_.SumOfSquares(stream_, dtable.data(), table_elements, &sum); });
    Report("zero", static_cast<double>(table_elements) * 4, tables,
           [&] { return kernels_.Zero(stream_, dtable.data(), table_elements * 4); });
    Report("cast in place", static_cast<double>(table_elements) * 6, 0,
           [&] { return kernels_.CastToBf16InPlace(stream_, dtable.data(), table_elements); });
  }

  const int rounds_;
  const Stopwatch stopwatch_;
  const DType dtype_;
  ThreadPool pool_;
  CpuKernels kernels_;
  NoStream stream_;
  double peak_ = 0, copy_ = 0;  // FLOP/s, bytes/s
  double product_seconds_ = 0, other_seconds_ = 0;
};

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  const megatrain::TimingArguments arguments = megatrain::ReadTimingArguments(argc, argv);
  const double fp32 = megatrain::Bench(arguments, megatrain::DType::kF32).Run();
  const double bf16 = megatrain::Bench(arguments, megatrain::DType::kBF16).Run();
  std::printf("\nBF16 over FP32, tokens/s of the step: %.2f\n", bf16 / fp32);
  return 0;
}

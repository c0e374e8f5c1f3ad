// What a mixture's products lose because each expert has few rows, on the cpu device:
//   bazel run //tests/bench:expert_bench -- [THREADS] [ROUNDS] [wall|cpu]
// `cpu` counts processor time instead, which a busy machine disturbs less (one thread only).
// For 32 experts of hidden 1024 and intermediate 512, the time of a loop over the experts is given
// over that of one product with as many operations: the same weight for all rows. Both are measured
// in turn, and the median of the rounds' ratios counts. The kernels that move rows are given beside
// the products of the same turn.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/device/device.h"
#include "tests/bench/kernel_timing.h"

namespace megatrain {
namespace {

constexpr int64_t kHidden = 1024, kIntermediate = 512, kExperts = 32, kChosen = 4;

class Bench {
 public:
  Bench(const TimingArguments& arguments, DType dtype)
      : rounds_(arguments.rounds),
        stopwatch_(arguments.clock, arguments.rounds),
        dtype_(dtype),
        pool_(arguments.threads),
        kernels_(&pool_) {}

  void Run() {
    std::printf("\n%s, %d threads, medians of %d\n", DTypeName(dtype_), pool_.threads(), rounds_);
    for (int64_t rows : {64, 128, 512}) {
      for (const bool add : {true, false}) {
        experts_seconds_ = dense_seconds_ = 0;
        Layer("gate_up", rows, 2 * kIntermediate, kHidden, add);
        Layer("down", rows, kHidden, kIntermediate, add);
        std::printf("  %3ld rows an expert, gradients %s: experts %.1f ms, dense %.1f ms, %.3f\n",
                    static_cast<long>(rows), add ? "added" : "overwritten", experts_seconds_ * 1e3,
                    dense_seconds_ * 1e3, experts_seconds_ / dense_seconds_);
      }
      MoveRows(rows);
    }
  }

 private:
  // out[m, n] = a b with a [m, k] and b [k, n], either transposed.
  struct Product {
    int64_t m, n, k;
    bool transpose_a, transpose_b, gradient, add;
  };

  absl::Status Multiply(const Product& p, const char* a, const char* b, char* out) {
    return kernels_.MatMul(stream_, {.m = p.m,
                                     .n = p.n,
                                     .k = p.k,
                                     .dtype = dtype_,
                                     .out_dtype = p.gradient ? DType::kF32 : dtype_,
                                     .a = a,
                                     .a_stride = p.transpose_a ? p.m : p.k,
                                     .transpose_a = p.transpose_a,
                                     .b = b,
                                     .b_stride = p.transpose_b ? p.k : p.n,
                                     .transpose_b = p.transpose_b,
                                     .out = out,
                                     .out_stride = p.n,
                                     .addend = p.add ? out : nullptr});
  }

  // The product of one expert over and over, with operands of their own, over `dense`.
  void Compare(const char* name, const Product& expert, const Product& dense) {
    const int64_t a = expert.m * expert.k, b = expert.n * expert.k, out = expert.m * expert.n;
    const std::vector<char> as = RandomValues(dtype_, kExperts * a);
    const std::vector<char> bs = RandomValues(dtype_, kExperts * b);
    const int64_t out_bytes = DTypeBytes(expert.gradient ? DType::kF32 : dtype_);
    std::vector<char> outs(static_cast<size_t>(kExperts * out * out_bytes));
    const auto experts = [&] {
      for (int64_t e = 0; e < kExperts; ++e) {
        Check(Multiply(expert, as.data() + e * a * DTypeBytes(dtype_),
                       bs.data() + e * b * DTypeBytes(dtype_), outs.data() + e * out * out_bytes));
      }
      return absl::OkStatus();
    };
    const auto whole = [&] { return Multiply(dense, as.data(), bs.data(), outs.data()); };
    Check(experts());
    Check(whole());
    std::vector<double> of_experts, of_dense, ratios;
    for (int i = 0; i < rounds_; ++i) {
      of_experts.push_back(stopwatch_.Seconds(experts));
      of_dense.push_back(stopwatch_.Seconds(whole));
      ratios.push_back(of_experts.back() / of_dense.back());
    }
    const double flops = 2.0 * static_cast<double>(dense.m * dense.n * dense.k);
    std::printf("  %-10s %4ld x %4ld x %4ld %6.0f GFLOP/s, dense %6.0f, ratio %.3f\n", name,
                static_cast<long>(expert.m), static_cast<long>(expert.n),
                static_cast<long>(expert.k), flops / Median(of_experts) * 1e-9,
                flops / Median(of_dense) * 1e-9, Median(ratios));
    experts_seconds_ += Median(of_experts);
    dense_seconds_ += Median(of_dense);
  }

  // Y = X W^T, dX = dY W, dW = dY^T X of weights [out, in]; dW is added to that of the micro-batch
  // before, or is the first.
  void Layer(const char* name, int64_t rows, int64_t out, int64_t in, bool add) {
    const std::string text = name;
    const int64_t all = rows * kExperts;
    Compare((text + " Y").c_str(), {rows, out, in, false, true, false, false},
            {all, out, in, false, true, false, false});
    Compare((text + " dX").c_str(), {rows, in, out, false, false, false, false},
            {all, in, out, false, false, false, false});
    Compare((text + " dW").c_str(), {out, in, rows, true, false, true, add},
            {out, in, all, true, false, true, add});
  }

  // A router, a sort, and for each expert what brings its rows, adds and weighs them.
  void MoveRows(int64_t rows) {
    const int64_t all = rows * kExperts, tokens = all / kChosen;
    const std::vector<char> logits = RandomValues(DType::kF32, tokens * kExperts);
    const std::vector<char> x = RandomValues(dtype_, tokens * kHidden);
    std::vector<char> at_rows = RandomValues(dtype_, all * kHidden), others = at_rows;
    const size_t assignments = static_cast<size_t>(all);
    std::vector<int32_t> choice(assignments), offsets(kExperts + 1), order(assignments);
    std::vector<int32_t> token_rows(assignments);
    std::vector<float> weights(assignments), dweights(assignments);
    std::vector<float> entropy(static_cast<size_t>(tokens)), sum(x.size());
    std::vector<char> dlogits(logits.size());
    const RouteArgs route{.tokens = tokens,
                          .experts = kExperts,
                          .chosen = kChosen,
                          .logits = reinterpret_cast<const float*>(logits.data()),
                          .choice = choice.data(),
                          .weights = weights.data(),
                          .entropy = entropy.data()};
    Report("route", stopwatch_.MedianSeconds([&] { return kernels_.Route(stream_, route); }));
    Report("route backward", stopwatch_.MedianSeconds([&] {
      return kernels_.RouteBackward(
          stream_, {.forward = route, .dweights = weights.data(), .dlogits = dlogits.data()});
    }));
    Report("sort", stopwatch_.MedianSeconds([&] {
      return kernels_.SortAssignments(stream_, {.tokens = tokens,
                                                .experts = kExperts,
                                                .chosen = kChosen,
                                                .choice = choice.data(),
                                                .offsets = offsets.data(),
                                                .assignments = order.data(),
                                                .rows = token_rows.data()});
    }));
    const auto each = [&](const std::function<absl::Status(const ExpertRows&, int64_t)>& call) {
      return [&, call] {
        for (size_t e = 0; e < kExperts; ++e) {
          const ExpertRows range{.first = offsets[e],
                                 .rows = offsets[e + 1] - offsets[e],
                                 .tokens = tokens,
                                 .chosen = kChosen,
                                 .assignments = order.data(),
                                 .token_rows = token_rows.data()};
          Check(call(range, range.first * kHidden * DTypeBytes(dtype_)));
        }
        return absl::OkStatus();
      };
    };
    const ExpertRows whole{0, all, tokens, kChosen, order.data(), token_rows.data()};
    const auto gather = [&](const ExpertRows& range, int64_t at) {
      return kernels_.GatherRows(stream_, {.dtype = dtype_,
                                           .width = kHidden,
                                           .range = range,
                                           .x = x.data(),
                                           .out = at_rows.data() + at});
    };
    const auto add = [&](const ExpertRows& range, int64_t at) {
      return kernels_.AddRows(stream_, {.dtype = dtype_,
                                        .width = kHidden,
                                        .range = range,
                                        .x = at_rows.data() + at,
                                        .weights = weights.data(),
                                        .sum = sum.data()});
    };
    const auto weigh = [&](const ExpertRows& range, int64_t at) {
      return kernels_.WeighRows(stream_, {.dtype = dtype_,
                                          .width = kHidden,
                                          .range = range,
                                          .weights = weights.data(),
                                          .out = others.data() + at,
                                          .dout = at_rows.data() + at,
                                          .dweights = dweights.data()});
    };
    Report("gather", stopwatch_.MedianSeconds(each(gather)));
    Report("gather, at once", stopwatch_.MedianSeconds([&] { return gather(whole, 0); }));
    Report("add", stopwatch_.MedianSeconds(each(add)));
    Report("add, at once", stopwatch_.MedianSeconds([&] { return add(whole, 0); }));
    Report("weigh", stopwatch_.MedianSeconds(each(weigh)));
  }

  void Report(const char* name, double seconds) {
    std::printf("    %-16s %8.3f ms, %.4f of the products\n", name, seconds * 1e3,
                seconds / experts_seconds_);
  }

  const int rounds_;
  const Stopwatch stopwatch_;
  const DType dtype_;
  ThreadPool pool_;
  CpuKernels kernels_;
  NoStream stream_;
  double experts_seconds_ = 0, dense_seconds_ = 0;
};

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  const megatrain::TimingArguments arguments = megatrain::ReadTimingArguments(argc, argv);
  for (const megatrain::DType dtype : {megatrain::DType::kF32, megatrain::DType::kBF16}) {
    megatrain::Bench(arguments, dtype).Run();
  }
  return 0;
}

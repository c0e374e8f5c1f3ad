#include "tests/bench/gpu/gpu_kernels.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/cuda/kernels/launchers.h"

namespace megatrain {
namespace {

using Queue = GpuBenchDevice::Queue;

constexpr int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

class KernelBench {
 public:
  KernelBench(GpuBenchDevice& device, const GpuLimits& limits, const GpuKernelShapes& shapes,
              BenchResults& results)
      : device_(device), limits_(limits), s_(shapes), results_(results) {}

  absl::Status Run() {
    MT_RETURN_IF_ERROR(UploadIntegers());
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      dtype_ = dtype;
      e_ = DTypeBytes(dtype);
      MT_RETURN_IF_ERROR(Products());
      MT_RETURN_IF_ERROR(Attention());
      MT_RETURN_IF_ERROR(Elements());
      MT_RETURN_IF_ERROR(Head());
    }
    return absl::OkStatus();
  }

  // Where the integers end and the operands begin.
  static int64_t IntegerBytes(const GpuKernelShapes& s) {
    return kIntegerArrays * Aligned(s.tokens * int64_t{sizeof(int32_t)});
  }

  // Of AttentionBackward.
  static int64_t AttentionWorkspaceBytes(const GpuKernelShapes& s, DType dtype) {
    return CudaKernelSizes().AttentionBackwardWorkspaceBytes({.dtype = dtype,
                                                              .tokens = s.tokens,
                                                              .sequence = s.tokens,
                                                              .heads = s.heads,
                                                              .kv_heads = s.kv_heads,
                                                              .head_dim = s.head_dim,
                                                              .value_dim = s.head_dim});
  }

 private:
  using Call = std::function<absl::Status()>;
  // Arrays of [tokens]; those of bounds take two places.
  enum IntegerArray {
    kPositions,
    kBounds,  // of one document
    kPackedBounds = kBounds + 2,
    kIds = kPackedBounds + 2,
    kOrder,  // of the ids
    kSameIds,
    kIntegerArrays
  };
  Stream& stream() { return device_.stream(); }
  Kernels& kernels() { return device_.kernels(); }

  // Operand `index` of equal parts of the memory; all are as large as the largest one.
  char* Part(int index) {
    const int64_t base = IntegerBytes(s_);
    const int64_t part = (device_.device_bytes() - base) / 6 / 256 * 256;
    return device_.memory() + base + index * part;
  }
  int32_t* Integers(IntegerArray index) {
    return reinterpret_cast<int32_t*>(device_.memory() +
                                      index * Aligned(s_.tokens * int64_t{sizeof(int32_t)}));
  }

  absl::Status UploadIntegers() {
    // Lengths as chats have them, packed.
    constexpr int kLengths[] = {7, 1, 12, 3, 20, 2, 5, 14};
    for (int64_t start = 0, d = 0; start < s_.tokens; ++d) {
      packed_starts_.push_back(static_cast<int32_t>(start));
      start += std::max<int64_t>(1, s_.tokens * kLengths[d % 8] / 64);
    }
    packed_starts_.push_back(static_cast<int32_t>(s_.tokens));

    auto* const host = reinterpret_cast<int32_t*>(device_.host());
    const int64_t n = s_.tokens, stride = Aligned(n * 4) / 4;
    std::memset(host, 0, static_cast<size_t>(IntegerBytes(s_)));
    for (int64_t t = 0, d = 0; t < n; ++t) {
      while (packed_starts_[d + 1] <= t) ++d;
      host[kPositions * stride + t] = static_cast<int32_t>(t);
      host[kBounds * stride + 2 * t + 1] = static_cast<int32_t>(n);
      host[kPackedBounds * stride + 2 * t] = packed_starts_[d];
      host[kPackedBounds * stride + 2 * t + 1] = packed_starts_[d + 1];
      host[kIds * stride + t] = static_cast<int32_t>(t * 7919 % s_.vocabulary);
    }
    int32_t* const order = host + kOrder * stride;
    std::iota(order, order + n, 0);
    std::stable_sort(order, order + n, [ids = host + kIds * stride](int32_t a, int32_t b) {
      return ids[a] < ids[b];
    });
    MT_RETURN_IF_ERROR(
        device_.Check(device_.api().CopyToDevice(device_.queue(Queue::kKernels), device_.memory(),
                                                 host, IntegerBytes(s_)),
                      "cudaMemcpyAsync"));
    return device_.Check(device_.api().StreamSynchronize(device_.queue(Queue::kKernels)),
                         "cudaStreamSynchronize");
  }

  absl::Status Line(const std::string& name, double flops, double bytes, const Call& call) {
    if (results_.out_of_time()) return absl::DeadlineExceededError("out of time before " + name);
    // What is bound by memory is not to find its operands in the cache: they would not be there.
    MT_ASSIGN_OR_RETURN(const double seconds,
                        flops > 0 ? device_.Seconds(Queue::kKernels, s_.repetitions, call)
                                  : device_.SecondsWithoutCache(s_.repetitions, call));
    const double rate = (flops > 0 ? flops : bytes) / seconds;
    const double limit =
        flops > 0 ? limits_.flops_per_second(dtype_) : limits_.copy_bytes_per_second;
    return results_.Add(absl::StrCat(DTypeName(dtype_), ", ", s_.tokens, " tokens: ", name),
                        rate / (flops > 0 ? 1e12 : 1e9), flops > 0 ? "TFLOP/s" : "GB/s",
                        absl::StrFormat("%.1f us, %.1f%% of the %s", seconds * 1e6,
                                        100 * rate / limit, flops > 0 ? "products" : "copy"));
  }

  absl::Status Product(const char* name, int64_t m, int64_t n, int64_t k, bool weight_gradient) {
    MatMulArgs args;
    args.m = m;
    args.n = n;
    args.k = k;
    args.dtype = dtype_;
    args.out_dtype = weight_gradient ? DType::kF32 : dtype_;
    args.transpose_a = weight_gradient;
    args.transpose_b = !weight_gradient;
    args.a = Part(0);
    args.a_stride = weight_gradient ? m : k;
    args.b = Part(1);
    args.b_stride = weight_gradient ? n : k;
    args.out = Part(2);
    args.out_stride = n;
    // Over micro-batches a weight's gradient is added up.
    if (weight_gradient) args.addend = static_cast<const float*>(args.out);
    return Line(name, 2.0 * static_cast<double>(m) * static_cast<double>(n * k), 0,
                [&] { return kernels().MatMul(stream(), args); });
  }

  absl::Status Products() {
    const int64_t qkv = (s_.heads + 2 * s_.kv_heads) * s_.head_dim;
    MT_RETURN_IF_ERROR(Product("qkv", s_.tokens, qkv, s_.hidden, false));
    MT_RETURN_IF_ERROR(Product("gate and up", s_.tokens, 2 * s_.intermediate, s_.hidden, false));
    MT_RETURN_IF_ERROR(Product("down", s_.tokens, s_.hidden, s_.intermediate, false));
    MT_RETURN_IF_ERROR(
        Product("gradient of down, FP32 sums", s_.hidden, s_.intermediate, s_.tokens, true));
    MT_RETURN_IF_ERROR(
        Product("a chunk's logits", s_.chunk_tokens, s_.vocabulary, s_.hidden, false));
    return Product("a chunk's gradient of the head", s_.vocabulary, s_.hidden, s_.chunk_tokens,
                   true);
  }

  absl::Status Attention() {
    MT_RETURN_IF_ERROR(AttentionOver("", {0, static_cast<int32_t>(s_.tokens)}, kBounds));
    return AttentionOver(", packed", packed_starts_, kPackedBounds);
  }

  absl::Status AttentionOver(const std::string& how, const std::vector<int32_t>& starts,
                             IntegerArray bounds) {
    const int64_t width = (s_.heads + 2 * s_.kv_heads) * s_.head_dim;
    AttentionBackwardArgs args;
    AttentionArgs& f = args.forward;
    f.dtype = dtype_;
    f.tokens = s_.tokens;
    f.heads = s_.heads;
    f.kv_heads = s_.kv_heads;
    f.head_dim = f.value_dim = s_.head_dim;
    f.scale = 0.0884f;
    f.document_starts = starts.data();
    f.documents = static_cast<int64_t>(starts.size()) - 1;
    f.document_bounds = Integers(bounds);
    f.q = Part(0);
    f.k = Part(0) + s_.heads * s_.head_dim * e_;
    f.v = Part(0) + (s_.heads + s_.kv_heads) * s_.head_dim * e_;
    f.q_stride = f.k_stride = f.v_stride = width;
    f.out = Part(1);
    f.lse = reinterpret_cast<float*>(Part(2));
    args.dout = Part(3);
    args.dq = Part(4);
    args.dk = Part(4) + s_.heads * s_.head_dim * e_;
    args.dv = Part(4) + (s_.heads + s_.kv_heads) * s_.head_dim * e_;
    args.dq_stride = args.dk_stride = args.dv_stride = width;
    args.workspace = Part(5);
    args.workspace_bytes = AttentionWorkspaceBytes(s_, dtype_);
    double pairs = 0;  // of tokens, of which one sees the other
    for (int64_t d = 0; d < f.documents; ++d) {
      const double length = starts[d + 1] - starts[d];
      pairs += length * length / 2;
    }
    // Two products a pair; backward has five.
    const double flops = 2 * 2 * pairs * static_cast<double>(s_.heads * s_.head_dim);
    // As the engine calls it: cuDNN's, where it is there and takes the call.
    MT_RETURN_IF_ERROR(
        Line("attention" + how, flops, 0, [&] { return kernels().Attention(stream(), f); }));
    MT_RETURN_IF_ERROR(Line("attention backward" + how, 2.5 * flops, 0,
                            [&] { return kernels().AttentionBackward(stream(), args); }));
    void* const queue = device_.queue(Queue::kKernels);
    MT_RETURN_IF_ERROR(Line("attention" + how + ", our kernel", flops, 0,
                            [&] { return device_.Check(cuda::Attention(queue, f), "Attention"); }));
    return Line("attention backward" + how + ", ours", 2.5 * flops, 0, [&] {
      return device_.Check(cuda::AttentionBackward(queue, args), "AttentionBackward");
    });
  }

  absl::Status Elements() {
    const double rows = static_cast<double>(s_.tokens * s_.hidden * e_);
    RmsNormArgs norm;
    norm.dtype = dtype_;
    norm.rows = s_.tokens;
    norm.width = s_.hidden;
    norm.epsilon = 1e-6f;
    norm.x = Part(0);
    norm.x_stride = s_.hidden;
    norm.weight = Part(1);
    norm.y = Part(2);
    norm.y_stride = s_.hidden;
    norm.rstd = reinterpret_cast<float*>(Part(3));
    MT_RETURN_IF_ERROR(
        Line("RMSNorm", 0, 2 * rows, [&] { return kernels().RmsNorm(stream(), norm); }));
    RmsNormBackwardArgs back;
    back.dtype = dtype_;
    back.rows = s_.tokens;
    back.width = s_.hidden;
    back.x = Part(0);
    back.x_stride = s_.hidden;
    back.weight = Part(1);
    back.rstd = norm.rstd;
    back.dy = Part(2);
    back.dy_stride = s_.hidden;
    back.dx = Part(4);
    back.dx_stride = s_.hidden;
    back.accumulate = true;
    back.dweight = reinterpret_cast<float*>(Part(5));
    MT_RETURN_IF_ERROR(Line("RMSNorm backward", 0, 4 * rows,
                            [&] { return kernels().RmsNormBackward(stream(), back); }));
    const int64_t width = (s_.heads + 2 * s_.kv_heads) * s_.head_dim;
    // Of the queries' heads, where they lie.
    const double queries = static_cast<double>(s_.tokens * s_.heads * s_.head_dim * e_);
    norm.groups = back.groups = s_.heads;
    norm.width = back.width = s_.head_dim;
    norm.x_stride = norm.y_stride = back.x_stride = back.dy_stride = back.dx_stride = width;
    norm.y = Part(0);
    back.dx = Part(2);
    back.accumulate = false;
    MT_RETURN_IF_ERROR(
        Line("QK norm", 0, 2 * queries, [&] { return kernels().RmsNorm(stream(), norm); }));
    MT_RETURN_IF_ERROR(Line("QK norm backward", 0, 3 * queries,
                            [&] { return kernels().RmsNormBackward(stream(), back); }));
    MT_RETURN_IF_ERROR(Line("bias backward", 0, static_cast<double>(s_.tokens * width * e_), [&] {
      return kernels().BiasBackward(stream(), dtype_, s_.tokens, width, Part(0), width,
                                    reinterpret_cast<float*>(Part(5)), true);
    }));
    RopeArgs rope;
    rope.dtype = dtype_;
    rope.tokens = s_.tokens;
    rope.heads = s_.heads + s_.kv_heads;
    rope.head_dim = rope.rotary_dim = s_.head_dim;
    rope.x = Part(0);
    rope.stride = width;
    rope.positions = Integers(kPositions);
    rope.cosine = reinterpret_cast<const float*>(Part(1));
    rope.sine = reinterpret_cast<const float*>(Part(2));
    MT_RETURN_IF_ERROR(Line("RoPE", 0,
                            2.0 * static_cast<double>(s_.tokens * rope.heads * s_.head_dim * e_),
                            [&] { return kernels().Rope(stream(), rope); }));
    const double wide = static_cast<double>(s_.tokens * s_.intermediate * e_);
    GluArgs glu;
    glu.dtype = dtype_;
    glu.tokens = s_.tokens;
    glu.width = s_.intermediate;
    glu.gate_up = Part(0);
    glu.out = Part(1);
    MT_RETURN_IF_ERROR(Line("SwiGLU", 0, 3 * wide, [&] { return kernels().Glu(stream(), glu); }));
    GluBackwardArgs glu_back;
    glu_back.dtype = dtype_;
    glu_back.tokens = s_.tokens;
    glu_back.width = s_.intermediate;
    glu_back.gate_up = Part(0);
    glu_back.dout = Part(1);
    glu_back.dgate_up = Part(2);
    return Line("SwiGLU backward", 0, 6 * wide,
                [&] { return kernels().GluBackward(stream(), glu_back); });
  }

  absl::Status Head() {
    const double rows = static_cast<double>(s_.tokens * s_.hidden * e_);
    EmbeddingArgs embedding;
    embedding.dtype = dtype_;
    embedding.tokens = s_.tokens;
    embedding.hidden = s_.hidden;
    embedding.vocabulary = s_.vocabulary;
    embedding.ids = Integers(kIds);
    embedding.table = Part(0);
    embedding.out = Part(1);
    MT_RETURN_IF_ERROR(
        Line("embedding", 0, 2 * rows, [&] { return kernels().Embedding(stream(), embedding); }));
    // Read in T, read and written in FP32. Ids that are all one, as padding is, are one row.
    EmbeddingBackwardArgs gradient;
    gradient.dtype = dtype_;
    gradient.tokens = s_.tokens;
    gradient.hidden = s_.hidden;
    gradient.vocabulary = s_.vocabulary;
    gradient.ids = Integers(kIds);
    gradient.sorted_positions = Integers(kOrder);
    gradient.dout = Part(1);
    gradient.dtable = reinterpret_cast<float*>(Part(0));
    const double table_rows = static_cast<double>(s_.tokens * s_.hidden) * 2 * sizeof(float);
    MT_RETURN_IF_ERROR(Line("embedding backward", 0, rows + table_rows,
                            [&] { return kernels().EmbeddingBackward(stream(), gradient); }));
    gradient.ids = Integers(kSameIds);
    gradient.sorted_positions = Integers(kPositions);
    MT_RETURN_IF_ERROR(Line("embedding backward, one id", 0, rows,
                            [&] { return kernels().EmbeddingBackward(stream(), gradient); }));
    const double logits = static_cast<double>(s_.chunk_tokens * s_.vocabulary);
    CrossEntropyArgs loss;
    loss.dtype = dtype_;
    loss.tokens = s_.chunk_tokens;
    loss.vocabulary = s_.vocabulary;
    loss.logits = reinterpret_cast<float*>(Part(0));
    loss.logits_stride = s_.vocabulary;
    loss.labels = Integers(kIds);
    loss.scale = 1e-6f;
    loss.losses = reinterpret_cast<float*>(Part(1));
    // Read for the maximum and the sum, read and written as the gradient.
    MT_RETURN_IF_ERROR(Line("cross-entropy", 0, logits * (4 + 4 + static_cast<double>(e_)),
                            [&] { return kernels().CrossEntropy(stream(), loss); }));
    const int64_t elements = s_.tokens * s_.hidden;
    MT_RETURN_IF_ERROR(Line("sum of squares, FP32", 0, 4.0 * static_cast<double>(elements), [&] {
      return kernels().SumOfSquares(stream(), reinterpret_cast<const float*>(Part(2)), elements,
                                    reinterpret_cast<double*>(Part(3)));
    }));
    return Line("cast to BF16 in place", 0, 6.0 * static_cast<double>(elements),
                [&] { return kernels().CastToBf16InPlace(stream(), Part(2), elements); });
  }

  GpuBenchDevice& device_;
  const GpuLimits& limits_;
  const GpuKernelShapes s_;
  BenchResults& results_;
  std::vector<int32_t> packed_starts_;  // of documents of many lengths
  DType dtype_ = DType::kBF16;
  int64_t e_ = 2;
};

}  // namespace

int64_t GpuKernelShapes::device_bytes() const {
  const int64_t largest =
      std::max({2 * tokens * intermediate, 2 * hidden * intermediate, vocabulary * hidden,
                chunk_tokens * vocabulary, tokens * (heads + 2 * kv_heads) * head_dim}) *
      int64_t{sizeof(float)};
  const int64_t workspace = std::max(KernelBench::AttentionWorkspaceBytes(*this, DType::kBF16),
                                     KernelBench::AttentionWorkspaceBytes(*this, DType::kF32));
  return KernelBench::IntegerBytes(*this) + 6 * Aligned(std::max(largest, workspace));
}

absl::Status BenchGpuKernels(GpuBenchDevice& device, const GpuLimits& limits,
                             const GpuKernelShapes& shapes, BenchResults& results) {
  return KernelBench(device, limits, shapes, results).Run();
}

}  // namespace megatrain

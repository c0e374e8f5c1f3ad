#include "tests/bench/gpu/gpu_kernels.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

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
  KernelBench(GpuBenchDevice& device, const GpuLimits& limits, const GpuKernelShapes& shapes)
      : device_(device), limits_(limits), s_(shapes) {}

  absl::Status Run() {
    MT_RETURN_IF_ERROR(UploadIntegers());
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      std::printf("kernels, %s, %lld tokens\n", DTypeName(dtype),
                  static_cast<long long>(s_.tokens));
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
    return 5 * Aligned(s.tokens * int64_t{sizeof(int32_t)});
  }

  // Of AttentionBackward.
  static int64_t AttentionWorkspaceBytes(const GpuKernelShapes& s, DType dtype) {
    return CudaKernelSizes().AttentionBackwardWorkspaceBytes({.dtype = dtype,
                                                              .tokens = s.tokens,
                                                              .sequence = s.tokens,
                                                              .heads = s.heads,
                                                              .kv_heads = s.kv_heads,
                                                              .head_dim = s.head_dim});
  }

 private:
  using Call = std::function<absl::Status()>;
  Stream& stream() { return device_.stream(); }
  Kernels& kernels() { return device_.kernels(); }

  // Operand `index` of equal parts of the memory; all are as large as the largest one.
  char* Part(int index) {
    const int64_t base = IntegerBytes(s_);
    const int64_t part = (device_.device_bytes() - base) / 6 / 256 * 256;
    return device_.memory() + base + index * part;
  }
  int32_t* Integers(int index) {
    return reinterpret_cast<int32_t*>(device_.memory() +
                                      index * Aligned(s_.tokens * int64_t{sizeof(int32_t)}));
  }

  // Positions, ids and their order, and the bounds of one document.
  absl::Status UploadIntegers() {
    auto* const host = reinterpret_cast<int32_t*>(device_.host());
    const int64_t n = s_.tokens, stride = Aligned(n * 4) / 4;
    std::memset(host, 0, static_cast<size_t>(IntegerBytes(s_)));
    for (int64_t t = 0; t < n; ++t) {
      host[t] = static_cast<int32_t>(t);                   // positions, ids, their order
      host[stride + 2 * t + 1] = static_cast<int32_t>(n);  // bounds: parts 1 and 2
      host[3 * stride + t] = static_cast<int32_t>(t % s_.vocabulary);  // labels
    }
    MT_RETURN_IF_ERROR(
        device_.Check(device_.api().CopyToDevice(device_.queue(Queue::kKernels), device_.memory(),
                                                 host, IntegerBytes(s_)),
                      "cudaMemcpyAsync"));
    return device_.Check(device_.api().StreamSynchronize(device_.queue(Queue::kKernels)),
                         "cudaStreamSynchronize");
  }

  absl::Status Line(const char* name, double flops, double bytes, const Call& call) {
    // What is bound by memory is not to find its operands in the cache: they would not be there.
    MT_ASSIGN_OR_RETURN(const double seconds,
                        flops > 0 ? device_.Seconds(Queue::kKernels, s_.repetitions, call)
                                  : device_.SecondsWithoutCache(s_.repetitions, call));
    if (flops > 0) {
      std::printf("  %-28s %10.1f us %9.1f TFLOP/s %5.1f%% of products\n", name, seconds * 1e6,
                  flops / seconds / 1e12, 100 * flops / seconds / limits_.flops_per_second(dtype_));
    } else {
      std::printf("  %-28s %10.1f us %9.1f GB/s    %5.1f%% of the copy\n", name, seconds * 1e6,
                  bytes / seconds / 1e9, 100 * bytes / seconds / limits_.copy_bytes_per_second);
    }
    std::fflush(stdout);
    return absl::OkStatus();
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
    return Product("gradient of down, FP32 sums", s_.hidden, s_.intermediate, s_.tokens, true);
  }

  absl::Status Attention() {
    const int32_t starts[] = {0, static_cast<int32_t>(s_.tokens)};
    const int64_t width = (s_.heads + 2 * s_.kv_heads) * s_.head_dim;
    AttentionBackwardArgs args;
    AttentionArgs& f = args.forward;
    f.dtype = dtype_;
    f.tokens = s_.tokens;
    f.heads = s_.heads;
    f.kv_heads = s_.kv_heads;
    f.head_dim = s_.head_dim;
    f.scale = 0.0884f;
    f.document_starts = starts;
    f.documents = 1;
    f.document_bounds = Integers(1);
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
    const double tokens = static_cast<double>(s_.tokens);
    // Two products over half of the pairs of tokens; backward has five.
    const double flops = 2 * 2 * tokens * tokens / 2 * static_cast<double>(s_.heads * s_.head_dim);
    // As the engine calls it: cuDNN's, where it is there and takes the call.
    MT_RETURN_IF_ERROR(
        Line("attention", flops, 0, [&] { return kernels().Attention(stream(), f); }));
    MT_RETURN_IF_ERROR(Line("attention backward", 2.5 * flops, 0,
                            [&] { return kernels().AttentionBackward(stream(), args); }));
    void* const queue = device_.queue(Queue::kKernels);
    MT_RETURN_IF_ERROR(Line("attention, our kernel", flops, 0,
                            [&] { return device_.Check(cuda::Attention(queue, f), "Attention"); }));
    return Line("attention backward, ours", 2.5 * flops, 0, [&] {
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
    RopeArgs rope;
    rope.dtype = dtype_;
    rope.tokens = s_.tokens;
    rope.heads = s_.heads + s_.kv_heads;
    rope.head_dim = s_.head_dim;
    rope.x = Part(0);
    rope.stride = width;
    rope.positions = Integers(0);
    rope.cosine = reinterpret_cast<const float*>(Part(1));
    rope.sine = reinterpret_cast<const float*>(Part(2));
    MT_RETURN_IF_ERROR(Line("RoPE", 0,
                            2.0 * static_cast<double>(s_.tokens * rope.heads * s_.head_dim * e_),
                            [&] { return kernels().Rope(stream(), rope); }));
    const double wide = static_cast<double>(s_.tokens * s_.intermediate * e_);
    SwiGluArgs glu;
    glu.dtype = dtype_;
    glu.tokens = s_.tokens;
    glu.width = s_.intermediate;
    glu.gate_up = Part(0);
    glu.out = Part(1);
    MT_RETURN_IF_ERROR(
        Line("SwiGLU", 0, 3 * wide, [&] { return kernels().SwiGlu(stream(), glu); }));
    SwiGluBackwardArgs glu_back;
    glu_back.dtype = dtype_;
    glu_back.tokens = s_.tokens;
    glu_back.width = s_.intermediate;
    glu_back.gate_up = Part(0);
    glu_back.dout = Part(1);
    glu_back.dgate_up = Part(2);
    return Line("SwiGLU backward", 0, 5 * wide,
                [&] { return kernels().SwiGluBackward(stream(), glu_back); });
  }

  absl::Status Head() {
    const double rows = static_cast<double>(s_.tokens * s_.hidden * e_);
    EmbeddingArgs embedding;
    embedding.dtype = dtype_;
    embedding.tokens = s_.tokens;
    embedding.hidden = s_.hidden;
    embedding.vocabulary = s_.vocabulary;
    embedding.ids = Integers(3);
    embedding.table = Part(0);
    embedding.out = Part(1);
    MT_RETURN_IF_ERROR(
        Line("embedding", 0, 2 * rows, [&] { return kernels().Embedding(stream(), embedding); }));
    const double logits = static_cast<double>(s_.chunk_tokens * s_.vocabulary);
    CrossEntropyArgs loss;
    loss.dtype = dtype_;
    loss.tokens = s_.chunk_tokens;
    loss.vocabulary = s_.vocabulary;
    loss.logits = reinterpret_cast<float*>(Part(0));
    loss.logits_stride = s_.vocabulary;
    loss.labels = Integers(3);
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
                             const GpuKernelShapes& shapes) {
  return KernelBench(device, limits, shapes).Run();
}

}  // namespace megatrain

// The product of matrices without a common dimension (k = 0), which cuBLASLt does not take: bias
// and addend alone, or zeros. An expert that no token goes to has such a gradient.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, typename Out>
__global__ void __launch_bounds__(kThreads) EmptyProductKernel(MatMulArgs args) {
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (element >= args.m * args.n) return;
  const int64_t row = element / args.n, column = element % args.n;
  const int64_t at = row * args.out_stride + column;
  float value = 0;
  if (args.bias != nullptr) value = ToFloat(static_cast<const T*>(args.bias)[column]);
  if (args.addend != nullptr) value += ToFloat(static_cast<const Out*>(args.addend)[at]);
  static_cast<Out*>(args.out)[at] = FromFloat<Out>(value);
}

template <typename T>
int EmptyProductOf(const Queue& queue, const MatMulArgs& args) {
  return Launch(
      args.out_dtype == DType::kF32 ? EmptyProductKernel<T, float> : EmptyProductKernel<T, Bf16>,
      Grid(CeilDiv(args.m * args.n, kThreads)), kThreads, 0, queue, args);
}

}  // namespace

int EmptyProduct(const Queue& queue, const MatMulArgs& args) {
  if (args.m == 0 || args.n == 0) return 0;
  return args.dtype == DType::kF32 ? EmptyProductOf<float>(queue, args)
                                   : EmptyProductOf<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

// The delta net's gated norm and its gradient, FP32 inside. A warp has a head of a token.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// One element: the normalised value, also times the weight, the gate's sigmoid and SiLU, and the
// result. Both passes compute it the same way, for the same bits.
struct Gated {
  __device__ Gated(float x, float rstd, float weight, float gate)
      : n(x * rstd),
        weighed(n * weight),
        sigmoid(1.0f / (1.0f + expf(-gate))),
        silu(gate * sigmoid),
        out(weighed * silu) {}
  float n, weighed, sigmoid, silu, out;
};

// Row `item` of [tokens, heads]: where its elements lie.
template <typename T>
struct GatedRow {
  __device__ GatedRow(const GatedNormArgs& args, int64_t item)
      : width(static_cast<int>(args.head_dim)),
        token(item / args.heads),
        head((item - token * args.heads) * args.head_dim),
        at(item * args.head_dim),
        x(static_cast<const T*>(args.x) + at),
        gate(static_cast<const T*>(args.gate) + token * args.gate_stride + head),
        weight(static_cast<const T*>(args.weight)) {}

  __device__ float Rstd(float epsilon, int lane) const {
    float sum = 0;
    for (int i = lane; i < width; i += kWarp) sum += ToFloat(x[i]) * ToFloat(x[i]);
    return 1.0f / sqrtf(TeamSum<kWarp>(sum, nullptr) / static_cast<float>(width) + epsilon);
  }
  __device__ Gated At(int i, float rstd) const {
    return Gated(ToFloat(x[i]), rstd, ToFloat(weight[i]), ToFloat(gate[i]));
  }

  const int width;
  const int64_t token, head, at;
  const T *const x, *const gate, *const weight;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) GatedNormKernel(GatedNormArgs args) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (item >= args.tokens * args.heads) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const GatedRow<T> row(args, item);
  const float rstd = row.Rstd(args.epsilon, lane);
  for (int i = lane; i < row.width; i += kWarp) {
    static_cast<T*>(args.out)[row.at + i] = FromFloat<T>(row.At(i, rstd).out);
  }
}

// Shared: each warp's sums of dweight, [kWarps, head_dim]. A block does `items` rows, and its sums
// go to row blockIdx.x of `partial`.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    GatedNormBackwardKernel(GatedNormBackwardArgs args, int64_t items, float* partial) {
  const GatedNormArgs& forward = args.forward;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int width = static_cast<int>(forward.head_dim);
  float* const all_sums = SharedMemory<float>();
  float* const sums = all_sums + warp * width;
  for (int i = lane; i < width; i += kWarp) sums[i] = 0;  // each lane's own from here on
  const int64_t all = forward.tokens * forward.heads, first = blockIdx.x * items;
  const int64_t last = all - first < items ? all : first + items;
  T* const dout = static_cast<T*>(args.dout);
  for (int64_t item = first + warp; item < last; item += kWarps) {
    const GatedRow<T> row(forward, item);
    const float rstd = row.Rstd(forward.epsilon, lane);
    float along = 0;
    for (int i = lane; i < width; i += kWarp) {
      const Gated gated = row.At(i, rstd);
      const float d = ToFloat(dout[row.at + i]);
      along += d * gated.out;
      sums[i] += d * (gated.n * gated.silu);
    }
    const float mean = TeamSum<kWarp>(along, nullptr) / static_cast<float>(width);
    for (int i = lane; i < width; i += kWarp) {
      const Gated gated = row.At(i, rstd);
      const float d = ToFloat(dout[row.at + i]), gate = ToFloat(row.gate[i]);
      const float by_norm = d * (ToFloat(row.weight[i]) * gated.silu);
      const float slope = gated.sigmoid * (1.0f + gate * (1.0f - gated.sigmoid));
      static_cast<T*>(args.dx)[row.at + i] = FromFloat<T>(rstd * (by_norm - gated.n * mean));
      static_cast<T*>(args.dgate)[row.token * args.dgate_stride + row.head + i] =
          FromFloat<T>(d * (gated.weighed * slope));
      dout[row.at + i] = FromFloat<T>(gated.out);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += all_sums[w * width + i];
    partial[static_cast<int64_t>(blockIdx.x) * width + i] = sum;
  }
}

}  // namespace

int GatedNorm(const Queue& queue, const GatedNormArgs& args) {
  const int64_t items = args.tokens * args.heads;
  if (items == 0) return 0;
  return Launch(args.dtype == DType::kF32 ? GatedNormKernel<float> : GatedNormKernel<Bf16>,
                Grid(CeilDiv(items, kWarps)), kThreads, 0, queue, args);
}

int GatedNormBackward(const Queue& queue, const GatedNormBackwardArgs& args, void* scratch) {
  const GatedNormArgs& forward = args.forward;
  const int64_t all = forward.tokens * forward.heads, width = forward.head_dim;
  if (all == 0) return 0;
  const int64_t blocks_max = PartialSumBlocks(queue, CeilDiv(all, kWarps), width);
  if (blocks_max == 0) return kInvalidValue;
  const int64_t items = CeilDiv(all, blocks_max), blocks = CeilDiv(all, items);
  float* const partial = static_cast<float*>(scratch);
  const int error = Launch(
      forward.dtype == DType::kF32 ? GatedNormBackwardKernel<float> : GatedNormBackwardKernel<Bf16>,
      Grid(blocks), kThreads, static_cast<int>(kWarps * width * int64_t{sizeof(float)}), queue,
      args, items, partial);
  if (error != 0 || args.dweight == nullptr) return error;
  return AddPartialSums(queue, partial, blocks, width, args.add_dweight, args.dweight);
}

}  // namespace megatrain::cuda

// The embedding's rows gathered, and their gradients summed by id: a block for each run of one id
// in the positions sorted by id, so that every sum has one order and no atomics are needed.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 128;

template <typename T, int kCount>
__global__ void EmbeddingKernel(EmbeddingArgs args) {
  const int64_t token = blockIdx.x;
  const T* const row = static_cast<const T*>(args.table) + args.ids[token] * args.hidden;
  T* const out = static_cast<T*>(args.out) + token * args.hidden;
  using P = Pack<T, kCount>;
  for (int64_t i = threadIdx.x * kCount; i < args.hidden; i += kThreads * kCount) {
    *reinterpret_cast<P*>(out + i) = *reinterpret_cast<const P*>(row + i);
  }
}

// Block (place, columns): the run that begins at `place`, if one does.
template <typename T, int kCount>
__global__ void EmbeddingBackwardKernel(EmbeddingBackwardArgs args) {
  const int64_t place = blockIdx.x;
  const int32_t id = args.ids[args.sorted_positions[place]];
  if (place > 0 && args.ids[args.sorted_positions[place - 1]] == id) return;
  const int64_t i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kCount;
  if (i >= args.hidden) return;
  float sum[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) sum[j] = 0;
  for (int64_t at = place; at < args.tokens; ++at) {
    const int64_t position = args.sorted_positions[at];
    if (args.ids[position] != id) break;
    float v[kCount];
    Load(static_cast<const T*>(args.dout) + position * args.hidden + i, v);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum[j] += v[j];
  }
  float* const to = args.dtable + static_cast<int64_t>(id) * args.hidden + i;
#pragma unroll
  for (int j = 0; j < kCount; ++j) to[j] += sum[j];
}

template <typename T>
int EmbeddingOf(void* stream, const EmbeddingArgs& args) {
  const dim3 grid = Grid(args.tokens);
  return Aligned({args.table, args.out}, {args.hidden * int64_t{sizeof(T)}})
             ? Launch(EmbeddingKernel<T, kPackCount<T>>, grid, kThreads, 0, stream, args)
             : Launch(EmbeddingKernel<T, 1>, grid, kThreads, 0, stream, args);
}

template <typename T, int kCount>
int LaunchBackward(void* stream, const EmbeddingBackwardArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.tokens),
                  static_cast<unsigned>(CeilDiv(args.hidden, kThreads * kCount)), 1);
  return Launch(EmbeddingBackwardKernel<T, kCount>, grid, kThreads, 0, stream, args);
}

template <typename T>
int EmbeddingBackwardOf(void* stream, const EmbeddingBackwardArgs& args) {
  return Aligned({args.dout}, {args.hidden * int64_t{sizeof(T)}})
             ? LaunchBackward<T, kPackCount<T>>(stream, args)
             : LaunchBackward<T, 1>(stream, args);
}

}  // namespace

int Embedding(void* stream, const EmbeddingArgs& args) {
  if (args.tokens == 0) return 0;
  return args.dtype == DType::kF32 ? EmbeddingOf<float>(stream, args)
                                   : EmbeddingOf<Bf16>(stream, args);
}

int EmbeddingBackward(void* stream, const EmbeddingBackwardArgs& args) {
  if (args.tokens == 0) return 0;
  return args.dtype == DType::kF32 ? EmbeddingBackwardOf<float>(stream, args)
                                   : EmbeddingBackwardOf<Bf16>(stream, args);
}

}  // namespace megatrain::cuda

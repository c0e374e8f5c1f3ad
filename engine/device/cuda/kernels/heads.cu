// What is done to heads one by one: rotary positions in place, copies, and sums over heads. A
// thread has a pack of one head, or two whose elements are pairs of a rotation; in a sum it has the
// pack of all heads.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int kCount, bool kInterleaved>
__global__ void RopeKernel(RopeArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const uint32_t half = static_cast<uint32_t>(args.rotary_dim) / 2, packs = half / kCount;
  const uint32_t heads = static_cast<uint32_t>(args.heads);
  const uint32_t item = thread / packs, i = (thread - item * packs) * kCount;
  const int64_t token = item / heads, head = item % heads;
  T* const first = static_cast<T*>(args.x) + token * args.stride + head * args.head_dim +
                   (kInterleaved ? 2 * i : i);
  T* const second = first + (kInterleaved ? kCount : half);
  const int64_t table = static_cast<int64_t>(args.positions[token]) * half + i;
  float x[2][kCount];
  Load(first, x[0]);
  Load(second, x[1]);
  constexpr int kPiece = kCount < 4 ? kCount : 4;
#pragma unroll
  for (int p = 0; p < kCount; p += kPiece) {
    float cosine[kPiece], sine[kPiece];
    Load(args.cosine + table + p, cosine);
    Load(args.sine + table + p, sine);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) {
      const int pair = p + j;
      float& a = kInterleaved ? x[2 * pair / kCount][2 * pair % kCount] : x[0][pair];
      float& b = kInterleaved ? x[(2 * pair + 1) / kCount][(2 * pair + 1) % kCount] : x[1][pair];
      const float s = args.inverse ? -sine[j] : sine[j];
      const float rotated = a * cosine[j] - b * s;
      b = b * cosine[j] + a * s;
      a = rotated;
    }
  }
  Store(x[0], first);
  Store(x[1], second);
}

template <typename T, int kCount>
int LaunchRope(const Queue& queue, const RopeArgs& args) {
  const int64_t threads = args.tokens * args.heads * (args.rotary_dim / 2 / kCount);
  if (threads == 0) return 0;
  if (threads > kThreadsMax) return kInvalidValue;
  return Launch(args.interleaved ? RopeKernel<T, kCount, true> : RopeKernel<T, kCount, false>,
                Grid(CeilDiv(threads, kThreads)), kThreads, 0, queue, args,
                static_cast<uint32_t>(threads));
}

template <typename T>
int RopeOf(const Queue& queue, const RopeArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  return MovesPacks(queue, {args.x, args.cosine, args.sine},
                    {args.stride * kSize, args.head_dim * kSize, args.rotary_dim / 2 * kSize})
             ? LaunchRope<T, kPackCount<T>>(queue, args)
             : LaunchRope<T, 1>(queue, args);
}

// Takes heads * packs threads a token, `packs` for each head.
template <typename T, int kCount>
__global__ void CopyHeadsKernel(CopyHeadsArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const uint32_t packs = static_cast<uint32_t>(args.width) / kCount;
  const uint32_t heads = static_cast<uint32_t>(args.heads);
  const uint32_t item = thread / packs, i = (thread - item * packs) * kCount;
  const int64_t token = item / heads, head = item % heads;
  const T* const from = static_cast<const T*>(args.from) + token * args.from_stride +
                        head * args.from_head_stride + i;
  StorePack(LoadPack<T, kCount>(from),
            static_cast<T*>(args.to) + token * args.to_stride + head * args.to_head_stride + i);
}

template <typename T, int kCount>
__global__ void SumHeadsKernel(SumHeadsArgs args, uint32_t threads) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const uint32_t packs = static_cast<uint32_t>(args.width) / kCount;
  const int64_t token = thread / packs, i = thread % packs * kCount;
  const T* head = static_cast<const T*>(args.x) + token * args.x_stride + i;
  float sums[kCount] = {};
  for (int64_t h = 0; h < args.heads; ++h, head += args.x_head_stride) {
    float x[kCount];
    Load(head, x);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sums[j] += x[j];
  }
  Store(sums, static_cast<T*>(args.out) + token * args.out_stride + i);
}

template <typename T, int kCount>
int LaunchCopy(const Queue& queue, const CopyHeadsArgs& args) {
  const int64_t threads = args.tokens * args.heads * (args.width / kCount);
  if (threads == 0) return 0;
  if (threads > kThreadsMax) return kInvalidValue;
  return Launch(CopyHeadsKernel<T, kCount>, Grid(CeilDiv(threads, kThreads)), kThreads, 0, queue,
                args, static_cast<uint32_t>(threads));
}

template <typename T>
int CopyOf(const Queue& queue, const CopyHeadsArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  return MovesPacks(queue, {args.from, args.to},
                    {args.from_stride * kSize, args.from_head_stride * kSize,
                     args.to_stride * kSize, args.to_head_stride * kSize, args.width * kSize})
             ? LaunchCopy<T, kPackCount<T>>(queue, args)
             : LaunchCopy<T, 1>(queue, args);
}

template <typename T, int kCount>
int LaunchSum(const Queue& queue, const SumHeadsArgs& args) {
  const int64_t threads = args.tokens * (args.width / kCount);
  if (threads == 0) return 0;
  if (threads > kThreadsMax) return kInvalidValue;
  return Launch(SumHeadsKernel<T, kCount>, Grid(CeilDiv(threads, kThreads)), kThreads, 0, queue,
                args, static_cast<uint32_t>(threads));
}

template <typename T>
int SumOf(const Queue& queue, const SumHeadsArgs& args) {
  constexpr int64_t kSize = sizeof(T);
  return MovesPacks(queue, {args.x, args.out},
                    {args.x_stride * kSize, args.x_head_stride * kSize, args.out_stride * kSize,
                     args.width * kSize})
             ? LaunchSum<T, kPackCount<T>>(queue, args)
             : LaunchSum<T, 1>(queue, args);
}

}  // namespace

int CopyHeads(const Queue& queue, const CopyHeadsArgs& args) {
  return args.dtype == DType::kF32 ? CopyOf<float>(queue, args) : CopyOf<Bf16>(queue, args);
}

int SumHeads(const Queue& queue, const SumHeadsArgs& args) {
  return args.dtype == DType::kF32 ? SumOf<float>(queue, args) : SumOf<Bf16>(queue, args);
}

int Rope(const Queue& queue, const RopeArgs& args) {
  return args.dtype == DType::kF32 ? RopeOf<float>(queue, args) : RopeOf<Bf16>(queue, args);
}

}  // namespace megatrain::cuda

// Adds up a gradient of attention that comes in parts, one for each block of queries and keys. The
// memory's speed is what this takes: a part is read once, and the sum is neither zeroed before the
// first part nor written with the last one.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
// Packs of a thread, which asks for all before it writes one.
constexpr int kHeld = 4;
constexpr int kBlockPacks = kThreads * kHeld;
constexpr int kElements = kPackCount<float>;

template <bool kFirst, bool kLast>
__global__ void __launch_bounds__(kThreads)
    AddAttentionPartKernel(AttentionPart p, uint32_t packs, uint32_t row_packs) {
  const uint32_t first = blockIdx.x * kBlockPacks + threadIdx.x;
  Pack<Bf16, kElements> parts[kHeld];
  Pack<float, kElements> sums[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const uint32_t pack = first + h * kThreads;
    const int64_t element = static_cast<int64_t>(pack) * kElements;
    parts[h] = LoadPack<Bf16, kElements>(static_cast<const Bf16*>(p.part) + element, pack < packs);
    if constexpr (!kFirst) sums[h] = LoadPack<float, kElements>(p.sum + element, pack < packs);
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const uint32_t pack = first + h * kThreads;
    if (pack >= packs) return;
    float sum[kElements];
    Widen(parts[h], sum);
    if constexpr (!kFirst) {
      float before[kElements];
      Widen(sums[h], before);
#pragma unroll
      for (int i = 0; i < kElements; ++i) sum[i] += before[i];
    }
    if constexpr (kLast) {
      const int64_t row = pack / row_packs, column = pack % row_packs * kElements;
      Store(sum, static_cast<Bf16*>(p.out) + row * p.out_stride + column);
    } else {
      Store(sum, p.sum + static_cast<int64_t>(pack) * kElements);
    }
  }
}

}  // namespace

int AddAttentionPart(void* stream, const AttentionPart& part) {
  if (part.rows == 0) return 0;
  if (part.width % kElements != 0 || part.rows * part.width > kThreadsMax ||
      !Aligned({part.part, part.sum, part.out}, {part.out_stride * int64_t{sizeof(Bf16)}})) {
    return kInvalidValue;
  }
  const int64_t packs = part.rows * part.width / kElements;
  const auto launch = [&](auto kernel) {
    return Launch(kernel, Grid(CeilDiv(packs, kBlockPacks)), kThreads, 0, stream, part,
                  static_cast<uint32_t>(packs), static_cast<uint32_t>(part.width / kElements));
  };
  if (part.first) {
    return part.last ? launch(AddAttentionPartKernel<true, true>)
                     : launch(AddAttentionPartKernel<true, false>);
  }
  return part.last ? launch(AddAttentionPartKernel<false, true>)
                   : launch(AddAttentionPartKernel<false, false>);
}

}  // namespace megatrain::cuda

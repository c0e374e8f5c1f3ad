// The embedding's rows gathered, and their gradients summed by id without atomics, so that every
// sum has one order.
//
// In the positions sorted by id each id is a run. Some are thousands long (a space, padding), so
// that blocks take pieces of one length rather than runs: the part of a run with which it begins is
// added to the table, a part that continues the run of the piece before is left in the scratch
// memory, and a second kernel adds those parts.
#include <algorithm>
#include <cassert>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Packs of a row that a lane has, and asks for at once.
constexpr int kHeld = 4;

// A warp has a stretch of a token's row: `stretches` make up one.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads, 4)
    EmbeddingKernel(EmbeddingArgs args, uint32_t stretches) {
  const uint32_t item = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const int64_t token = item / stretches;
  if (token >= args.tokens) return;
  const int64_t first = (item % stretches * kHeld * kWarp + threadIdx.x % kWarp) * int64_t{kCount};
  const int32_t id = args.ids[token];
  assert(id >= 0 && id < args.vocabulary);
  const T* const row = static_cast<const T*>(args.table) + id * args.hidden;
  T* const out = static_cast<T*>(args.out) + token * args.hidden;
  Pack<T, kCount> held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = first + h * kWarp * kCount;
    held[h] = LoadPack<T, kCount>(row + i, i < args.hidden);
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = first + h * kWarp * kCount;
    if (i >= args.hidden) continue;
    if (args.scale != 1.0f) {
      float v[kCount];
      Widen(held[h], v);
#pragma unroll
      for (int j = 0; j < kCount; ++j) v[j] *= args.scale;
      Narrow(v, held[h]);
    }
    StorePack(held[h], out + i);
  }
}

// ---- Gradient ----

constexpr int kPieceThreads = 128;
// Positions whose rows a thread asks for at once; pieces are a multiple of it.
constexpr int kAtOnce = 4;
constexpr int64_t kLengthMin = 2 * kAtOnce;
// Pieces among which a block of the second kernel looks for parts of runs.
constexpr int64_t kBlockPieces = 32;

// The scratch memory holds for each piece the id whose run it continues, or -1, and a row of sums
// for it. Pieces are longer if those would not fit.
struct Pieces {
  int64_t length = 0, count = 0;
  int32_t* continued = nullptr;  // [count]
  float* sums = nullptr;         // [count, hidden]
};

// count 0: two rows do not fit.
Pieces CutIntoPieces(int64_t tokens, int64_t hidden, void* scratch) {
  constexpr int64_t kIdBytes = sizeof(int32_t), kAlignment = 16;
  const int64_t fit =
      (kScratchBytes - kAlignment) / (hidden * static_cast<int64_t>(sizeof(float)) + kIdBytes);
  Pieces pieces;
  if (fit == 0) return pieces;
  pieces.length = std::max(kLengthMin, CeilDiv(CeilDiv(tokens, fit), kAtOnce) * kAtOnce);
  pieces.count = CeilDiv(tokens, pieces.length);
  pieces.continued = static_cast<int32_t*>(scratch);
  pieces.sums = reinterpret_cast<float*>(static_cast<char*>(scratch) +
                                         CeilDiv(pieces.count * kIdBytes, kAlignment) * kAlignment);
  return pieces;
}

// Block (piece, columns). Shared: the piece's positions and their ids.
template <typename T, int kCount>
__global__ void __launch_bounds__(kPieceThreads, 4)
    EmbeddingBackwardKernel(EmbeddingBackwardArgs args, Pieces pieces) {
  // The elements of a pack of the FP32 table, and the number of these packs for kCount elements.
  constexpr int kPart = kCount < 4 ? kCount : 4, kParts = kCount / kPart;
  const int64_t first = blockIdx.x * pieces.length;
  const int64_t left = args.tokens - first;
  const int count = static_cast<int>(left < pieces.length ? left : pieces.length);
  int32_t* const positions = SharedMemory<int32_t>();
  int32_t* const ids = positions + pieces.length;
  for (int at = threadIdx.x; at < count; at += kPieceThreads) {
    positions[at] = args.sorted_positions[first + at];
    ids[at] = args.ids[positions[at]];
    assert(ids[at] >= 0 && ids[at] < args.vocabulary);
  }
  const int32_t before = first > 0 ? args.ids[args.sorted_positions[first - 1]] : -1;
  __syncthreads();
  const int32_t continued = before == ids[0] && before != args.padding_id ? before : -1;
  if (blockIdx.y == 0 && threadIdx.x == 0) pieces.continued[blockIdx.x] = continued;
  const int64_t i = (static_cast<int64_t>(blockIdx.y) * kPieceThreads + threadIdx.x) * kCount;
  if (i >= args.hidden) return;
  float sum[kCount] = {};
  for (int begin = 0; begin < count; begin += kAtOnce) {
    Pack<T, kCount> held[kAtOnce];
    Pack<float, kPart> old[kAtOnce][kParts];
    bool ends[kAtOnce], kept[kAtOnce];  // the part of a run, with this position; and is summed
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int at = begin + k;
      const bool there = at < count;
      const int32_t id = there ? ids[at] : 0;
      ends[k] = there && (at + 1 == count || ids[at + 1] != id);
      kept[k] = ends[k] && id != args.padding_id;
      held[k] = LoadPack<T, kCount>(
          static_cast<const T*>(args.dout) + (there ? positions[at] : 0) * args.hidden + i, there);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        old[k][p] = LoadPack<float, kPart>(args.dtable + id * args.hidden + i + p * kPart,
                                           kept[k] && id != continued);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float v[kCount];
      Widen(held[k], v);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum[j] += v[j];
      if (!ends[k]) continue;
      const int32_t id = ids[begin + k];
      float* const to =
          id == continued ? pieces.sums + blockIdx.x * args.hidden : args.dtable + id * args.hidden;
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        float part[kPart];
        Widen(old[k][p], part);
#pragma unroll
        for (int j = 0; j < kPart; ++j) {
          part[j] += sum[p * kPart + j] * args.scale;
          sum[p * kPart + j] = 0;
        }
        if (kept[k]) Store(part, to + i + p * kPart);
      }
    }
  }
}

// Block (pieces, columns): the runs whose first part that continues them lies in these pieces.
__global__ void __launch_bounds__(kThreads)
    EmbeddingRunsKernel(EmbeddingBackwardArgs args, Pieces pieces) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kWarp + threadIdx.x % kWarp;
  const int64_t first = blockIdx.x * kBlockPieces, count = pieces.count;
  const int64_t last = first + kBlockPieces < count ? first + kBlockPieces : count;
  const int32_t* const continued = pieces.continued;
  float* const shared = SharedMemory<float>();
  for (int64_t piece = first; piece < last; ++piece) {
    const int32_t id = continued[piece];
    if (id < 0 || (piece > 0 && continued[piece - 1] == id)) continue;
    float same = 0;
    for (int64_t p = piece + threadIdx.x; p < count; p += kThreads) same += continued[p] == id;
    const int64_t parts = static_cast<int64_t>(TeamSum<kThreads>(same, shared));
    float sum[1];
    ColumnSums<kWarps>(pieces.sums + piece * args.hidden + column, parts, args.hidden,
                       column < args.hidden, shared, sum);
    if (threadIdx.x < kWarp && column < args.hidden)
      args.dtable[id * args.hidden + column] += sum[0];
  }
}

// A thread has a column, and adds all positions' gradients in their order.
template <typename T>
__global__ void __launch_bounds__(kThreads) EmbeddingBackwardUnsplit(EmbeddingBackwardArgs args) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= args.hidden) return;
  float sum = 0;
  for (int64_t at = 0; at < args.tokens; ++at) {
    const int64_t position = args.sorted_positions[at];
    const int32_t id = args.ids[position];
    sum += ToFloat(static_cast<const T*>(args.dout)[position * args.hidden + column]);
    if (at + 1 < args.tokens && args.ids[args.sorted_positions[at + 1]] == id) continue;
    if (id != args.padding_id) args.dtable[id * args.hidden + column] += sum * args.scale;
    sum = 0;
  }
}

template <typename T, int kCount>
int LaunchEmbedding(const Queue& queue, const EmbeddingArgs& args) {
  const int64_t stretches = CeilDiv(args.hidden, kWarp * kHeld * kCount);
  if (args.tokens * stretches > kThreadsMax) return kInvalidValue;
  return Launch(EmbeddingKernel<T, kCount>, Grid(CeilDiv(args.tokens * stretches, kWarps)),
                kThreads, 0, queue, args, static_cast<uint32_t>(stretches));
}

template <typename T>
int EmbeddingOf(const Queue& queue, const EmbeddingArgs& args) {
  return MovesPacks(queue, {args.table, args.out}, {args.hidden * int64_t{sizeof(T)}})
             ? LaunchEmbedding<T, kPackCount<T>>(queue, args)
             : LaunchEmbedding<T, 1>(queue, args);
}

template <typename T, int kCount>
int LaunchBackward(const Queue& queue, const EmbeddingBackwardArgs& args, const Pieces& pieces) {
  const dim3 grid(static_cast<unsigned>(pieces.count),
                  static_cast<unsigned>(CeilDiv(args.hidden, kPieceThreads * kCount)), 1);
  return Launch(EmbeddingBackwardKernel<T, kCount>, grid, kPieceThreads,
                static_cast<int>(2 * pieces.length * int64_t{sizeof(int32_t)}), queue, args,
                pieces);
}

template <typename T>
int EmbeddingBackwardOf(const Queue& queue, const EmbeddingBackwardArgs& args, void* scratch) {
  if (!queue.paths.split_sums) {
    return Launch(EmbeddingBackwardUnsplit<T>, Grid(CeilDiv(args.hidden, kThreads)), kThreads, 0,
                  queue, args);
  }
  const Pieces pieces = CutIntoPieces(args.tokens, args.hidden, scratch);
  if (pieces.count == 0) return kInvalidValue;
  const int error = MovesPacks(queue, {args.dout, args.dtable}, {args.hidden * int64_t{sizeof(T)}})
                        ? LaunchBackward<T, kPackCount<T>>(queue, args, pieces)
                        : LaunchBackward<T, 1>(queue, args, pieces);
  if (error != 0) return error;
  const dim3 grid(static_cast<unsigned>(CeilDiv(pieces.count, kBlockPieces)),
                  static_cast<unsigned>(CeilDiv(args.hidden, kWarp)), 1);
  return Launch(EmbeddingRunsKernel, grid, kThreads,
                kColumnSumsFloats<1, kWarps> * int{sizeof(float)}, queue, args, pieces);
}

}  // namespace

int Embedding(const Queue& queue, const EmbeddingArgs& args) {
  if (args.tokens == 0) return 0;
  return args.dtype == DType::kF32 ? EmbeddingOf<float>(queue, args)
                                   : EmbeddingOf<Bf16>(queue, args);
}

int EmbeddingBackward(const Queue& queue, const EmbeddingBackwardArgs& args, void* scratch) {
  if (args.tokens == 0) return 0;
  return args.dtype == DType::kF32 ? EmbeddingBackwardOf<float>(queue, args, scratch)
                                   : EmbeddingBackwardOf<Bf16>(queue, args, scratch);
}

}  // namespace megatrain::cuda

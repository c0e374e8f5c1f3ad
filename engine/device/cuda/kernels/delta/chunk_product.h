// FP32 products of the matrices of a chunk of the gated delta rule, by a block of kThreads threads.
// A result is a tile [kChunk, kChunk], and each thread computes a square of it.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_CHUNK_PRODUCT_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_CHUNK_PRODUCT_H_

#include "engine/device/cuda/kernels/delta/delta_parts.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kChunk = kDeltaChunkTokens;
// A thread's square has kSquare rows and columns. A team of kTeam threads (primitives.h) has
// kSquare whole rows of the tile.
constexpr int kSquare = 4, kTeam = kChunk / kSquare;
static_assert(kTeam * kTeam == kThreads && kTeam <= kWarp);
// The number of terms of a product whose operands are copied to shared memory (staged) at once.
constexpr int kDepth = 16;
// The strides of rows in shared memory. kPitch, that of matrices, is one float longer than a row,
// so that a column is not in one bank. kStagePitch, that of staged operands, keeps four floats
// aligned to 16 bytes.
constexpr int kPitch = kChunk + 1, kStagePitch = kChunk + 4;

// Four floats that are loaded at once.
struct alignas(16) Four {
  float v[4];
};

// The calling thread's square of a tile.
struct Tile {
  float v[kSquare][kSquare] = {};

  // Calls f(row, column, element) for each of the thread's elements, with its place in the tile.
  template <typename F>
  __device__ void ForEach(const F& f) {
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
#pragma unroll
      for (int j = 0; j < kSquare; ++j) f(Row(i), Column(j), v[i][j]);
    }
  }
  // Return the row of v[i] and the column of v[..][j] in the tile.
  __device__ static int Row(int i) { return static_cast<int>(threadIdx.x) / kTeam * kSquare + i; }
  __device__ static int Column(int j) {
    return static_cast<int>(threadIdx.x) % kTeam * kSquare + j;
  }
};

// The shared memory in which operands are staged. Each operand has [kDepth, kStagePitch].
struct ProductStage {
  static constexpr int kFloats = 2 * kDepth * kStagePitch;
  // `memory` has kFloats, aligned to 16 bytes.
  __device__ explicit ProductStage(float* memory)
      : left(memory), right(memory + kDepth * kStagePitch) {}

  float *left, *right;
};

// Computes tile += a[kChunk, depth] b[depth, kChunk]. The functions a(row, l) and b(l, column)
// return the elements for l < depth. They must return 0 for rows and columns that are not there.
// Adjacent threads call `a` for adjacent l if kLeftByDepth is true, else for adjacent rows. They
// call `b` for adjacent l if kRightByDepth is true, else for adjacent columns. All threads of the
// block must call it. `a` and `b` may read shared memory that threads wrote before the call. Other
// threads may still read the stage when it returns.
template <bool kLeftByDepth, bool kRightByDepth, typename A, typename B>
__device__ void AddProduct(const ProductStage& s, int depth, const A& a, const B& b, Tile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int first = 0; first < depth; first += kDepth) {
    __syncthreads();  // what is staged has been used
#pragma unroll
    for (int e = thread; e < kDepth * kChunk; e += kThreads) {
      const int la = kLeftByDepth ? e % kDepth : e / kChunk;
      const int row = kLeftByDepth ? e / kDepth : e % kChunk;
      s.left[la * kStagePitch + row] = first + la < depth ? a(row, first + la) : 0.0f;
      const int lb = kRightByDepth ? e % kDepth : e / kChunk;
      const int column = kRightByDepth ? e / kDepth : e % kChunk;
      s.right[lb * kStagePitch + column] = first + lb < depth ? b(first + lb, column) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kDepth; ++l) {
      const Four rows = *reinterpret_cast<const Four*>(s.left + l * kStagePitch + Tile::Row(0));
      const Four columns =
          *reinterpret_cast<const Four*>(s.right + l * kStagePitch + Tile::Column(0));
#pragma unroll
      for (int i = 0; i < kSquare; ++i) {
#pragma unroll
        for (int j = 0; j < kSquare; ++j) tile.v[i][j] += rows.v[i] * columns.v[j];
      }
    }
  }
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_CHUNK_PRODUCT_H_

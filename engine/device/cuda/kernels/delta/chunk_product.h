// Products of matrices of a chunk [kDeltaChunkTokens, n] in FP32, by a block of kThreads threads.
// Each thread has a square of the result.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_CHUNK_PRODUCT_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_DELTA_CHUNK_PRODUCT_H_

#include "engine/device/cuda/kernels/delta/delta_parts.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kChunk = kDeltaChunkTokens;
// A thread has a square of a tile [kChunk, kChunk] of a result, and a team of kTeam threads
// (primitives.h) has kSquare whole rows.
constexpr int kSquare = 4, kTeam = kChunk / kSquare;
static_assert(kTeam * kTeam == kThreads && kTeam <= kWarp);
// The number of terms of a product whose operands are staged in shared memory at once.
constexpr int kDepth = 16;
// The strides of rows in shared memory. That of matrices is a float longer than a row, so that a
// column is not in one bank. That of staged operands keeps squares aligned to 16 bytes.
constexpr int kPitch = kChunk + 1, kStagePitch = kChunk + 4;

struct alignas(16) Four {
  float v[4];
};

// A thread's square of a tile.
struct Tile {
  float v[kSquare][kSquare] = {};

  // Calls f(row, column, element) for the thread's elements.
  template <typename F>
  __device__ void ForEach(const F& f) {
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
#pragma unroll
      for (int j = 0; j < kSquare; ++j) f(Row(i), Column(j), v[i][j]);
    }
  }
  __device__ static int Row(int i) { return static_cast<int>(threadIdx.x) / kTeam * kSquare + i; }
  __device__ static int Column(int j) {
    return static_cast<int>(threadIdx.x) % kTeam * kSquare + j;
  }
};

// The shared memory in which operands are staged: [kDepth, kStagePitch] each.
struct ProductStage {
  static constexpr int kFloats = 2 * kDepth * kStagePitch;
  __device__ explicit ProductStage(float* memory)
      : left(memory), right(memory + kDepth * kStagePitch) {}

  float *left, *right;
};

// Computes tile += a[kChunk, depth] b[depth, kChunk]. The functions a(row, l) and b(l, column)
// return the elements, with l < depth, and zeros for rows and columns that are not there.
// Neighbouring threads call `a` for neighbouring l with kLeftByDepth, else for neighbouring rows.
// They call `b` for neighbouring l with kRightByDepth, else for neighbouring columns. All threads
// of the block must call it.
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

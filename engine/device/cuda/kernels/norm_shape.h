// The parts that both directions of RMSNorm share: how rows are divided among threads, and the
// weights.
//
// A team of threads (primitives.h) computes a group of a row of RmsNormArgs, called a row below.
// The speed of the kernels is limited by memory. So a thread loads several packs of 16 bytes before
// it uses the first one, and holds them from the sum over the row to the result. A row of usual
// length is then read only once.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_NORM_SHAPE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_NORM_SHAPE_H_

#include <cstdint>

#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

// The threads of a block.
inline constexpr int kNormThreads = 256;

// The division of work in a kernel. A team of kTeam threads computes kRows rows at once, and each
// thread holds up to kHeld packs of each row. Rows of more than kTeam * kHeld packs need a shape
// with kHasRest, which reads the rest of a row twice.
template <int kTeamThreads, int kHeldPacks, int kRowsAtOnce>
struct NormShape {
  static constexpr int kTeam = kTeamThreads;
  static constexpr int kTeams = kNormThreads / kTeam;
  static constexpr int kHeld = kHeldPacks;
  static constexpr int kRows = kRowsAtOnce;
  static constexpr int kBlockRows = kTeams * kRows;
  static constexpr bool kHasRest = kTeam == kNormThreads && kRows == 1;
  // The floats of shared memory for TeamSums of one value for each of kRows rows.
  static constexpr int kSharedFloats = kRows * kNormThreads / kWarp;
};

// Calls f.template operator()<Shape>() with the shape for rows of `packs` packs, and returns its
// result. kPacks is false if packs are single elements. With each of the shapes a thread has room
// for four packs of an operand, in one to four rows.
template <bool kPacks, typename F>
int WithNormShape(int64_t packs, F f) {
  if constexpr (kPacks) {
    if (packs <= 16) return f.template operator()<NormShape<8, 2, 2>>();
    if (packs <= 32) return f.template operator()<NormShape<8, 4, 1>>();
  }
  if (packs <= 128) return f.template operator()<NormShape<32, 4, 1>>();
  if constexpr (kPacks) {
    if (packs <= 256) return f.template operator()<NormShape<kNormThreads, 1, 4>>();
    if (packs <= 512) return f.template operator()<NormShape<kNormThreads, 2, 2>>();
  }
  return f.template operator()<NormShape<kNormThreads, 4, 1>>();
}

// Returns the offset in elements of `item`, which counts the groups of all rows, rows * groups in
// all. `stride` is the distance between rows.
template <typename Args>
__device__ int64_t RowOffset(const Args& args, uint32_t item, int64_t stride) {
  const uint32_t groups = static_cast<uint32_t>(args.groups), row = item / groups;
  return row * stride + (item - row * groups) * args.width;
}

// Converts a pack of weights to FP32, and adds 1 to each if `plus_one` is true (AddsOne). For a
// norm without weights the pack must be zeros.
template <typename T, int kCount>
__device__ void WidenWeights(const Pack<T, kCount>& pack, bool plus_one, float (&to)[kCount]) {
  Widen(pack, to);
#pragma unroll
  for (int j = 0; j < kCount; ++j) to[j] = plus_one ? to[j] + 1.0f : to[j];
}

// Returns true if 1 must be added to each weight: if one_plus_weight is set, or if there are no
// weights, which then count as zeros.
template <typename Args>
__device__ bool AddsOne(const Args& args) {
  return args.one_plus_weight || args.weight == nullptr;
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_NORM_SHAPE_H_

// The parts that both directions of RMSNorm share: how threads divide the rows, and the weights.
//
// A team of threads (primitives.h) has a row (or a head of it, for QK norm). The kernels are bound
// by memory: a thread loads several packs of 16 bytes before it uses the first, and holds them from
// the sum over the row to the result, so that a row of usual length is read once.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_NORM_SHAPE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_NORM_SHAPE_H_

#include <cstdint>

#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {

inline constexpr int kNormThreads = 256;

// A team of kTeam threads has kRows rows at once, and each thread holds kHeld packs of each row.
// Only shapes with kHasRest take longer rows, whose rest they read twice.
template <int kTeamThreads, int kHeldPacks, int kRowsAtOnce>
struct NormShape {
  static constexpr int kTeam = kTeamThreads;
  static constexpr int kTeams = kNormThreads / kTeam;
  static constexpr int kHeld = kHeldPacks;
  static constexpr int kRows = kRowsAtOnce;
  static constexpr int kBlockRows = kTeams * kRows;
  static constexpr bool kHasRest = kTeam == kNormThreads && kRows == 1;
  // For TeamSums.
  static constexpr int kSharedFloats = kRows * kNormThreads / kWarp;
};

// Calls f.template operator()<Shape>() with the shape for rows of so many packs, and returns its
// result. kPacks is false if packs are single elements. The shape is such that few threads idle and
// each holds about four packs.
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

// Returns the offset, in elements, of part `item` of the rows * groups parts of rows.
template <typename Args>
__device__ int64_t RowOffset(const Args& args, uint32_t item, int64_t stride) {
  const uint32_t groups = static_cast<uint32_t>(args.groups), row = item / groups;
  return row * stride + (item - row * groups) * args.width;
}

// Converts a pack of weights to FP32 and adds 1 to each if `plus_one` (AddsOne). The pack is zeros
// for a norm without weight.
template <typename T, int kCount>
__device__ void WidenWeights(const Pack<T, kCount>& pack, bool plus_one, float (&to)[kCount]) {
  Widen(pack, to);
#pragma unroll
  for (int j = 0; j < kCount; ++j) to[j] = plus_one ? to[j] + 1.0f : to[j];
}

// Returns true if 1 is added to each weight: with one_plus_weight, or without a weight.
template <typename Args>
__device__ bool AddsOne(const Args& args) {
  return args.one_plus_weight || args.weight == nullptr;
}

}  // namespace megatrain::cuda

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_KERNELS_NORM_SHAPE_H_

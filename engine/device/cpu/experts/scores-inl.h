// Scores of a token's experts: the softmax and the sigmoid of a row of logits. This file is
// included once for each instruction set (Highway's foreach_target).
#include <cstddef>

#include "engine/device/cpu/loops/simd-inl.h"

#if defined(MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_SCORES_INL_H_
#undef MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_SCORES_INL_H_
#else
#define MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_SCORES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// Returns v, with zeros in the lanes from `count` on if kTail is true.
template <bool kTail>
HWY_INLINE VF Counted(VF v, size_t count) {
  if constexpr (kTail) return hn::IfThenElseZero(hn::FirstN(DF(), count), v);
  return v;
}

// Returns the largest x[i] for i < n. REQUIRES: n > 0.
HWY_INLINE float LargestOf(const float* x, size_t n) {
  VF largest = hn::Set(DF(), x[0]);
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    VF v = LoadPart<kTail>(x + i, count);
    if constexpr (kTail) v = hn::IfThenElse(hn::FirstN(DF(), count), v, largest);
    largest = hn::Max(largest, v);
  });
  return MaxLanes(largest);
}

// Computes y = softmax(x) over n elements. y may be x. If any x[i] is NaN or +infinity, or all are
// -infinity, all y[i] are NaN. REQUIRES: n > 0.
HWY_INLINE void SoftmaxTo(const float* x, size_t n, float* y) {
  const VF largest = hn::Set(DF(), LargestOf(x, n));
  VF sum = hn::Zero(DF());
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    const VF e = ExpNegative(hn::Sub(LoadPart<kTail>(x + i, count), largest));
    sum = hn::Add(sum, Counted<kTail>(e, count));
    StorePart<kTail>(e, y + i, count);
  });
  const VF factor = hn::Set(DF(), 1.0f / SumLanes(sum));
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    StorePart<kTail>(hn::Mul(LoadPart<kTail>(y + i, count), factor), y + i, count);
  });
}

// Computes y = sigmoid(x) over n elements or, if `negative`, sigmoid(-x) = 1 - sigmoid(x). y may be
// x.
HWY_INLINE void SigmoidTo(const float* x, size_t n, bool negative, float* y) {
  const VF sign = hn::Set(DF(), negative ? -1.0f : 1.0f);
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    StorePart<kTail>(Sigmoid(hn::Mul(LoadPart<kTail>(x + i, count), sign)), y + i, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#endif  // per-target guard

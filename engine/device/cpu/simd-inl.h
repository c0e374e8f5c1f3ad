// Vector helpers for the element-wise kernels: loads and stores of FP32 vectors from and to FP32 or
// BF16 memory, and an exponential. This file is included once for each instruction set (Highway's
// foreach_target).
#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "hwy/highway.h"

#if defined(MEGATRAIN_ENGINE_DEVICE_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGATRAIN_ENGINE_DEVICE_CPU_SIMD_INL_H_
#undef MEGATRAIN_ENGINE_DEVICE_CPU_SIMD_INL_H_
#else
#define MEGATRAIN_ENGINE_DEVICE_CPU_SIMD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DH = hn::Rebind<uint16_t, DF>;

HWY_INLINE VF Load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF Load(const bf16_t* p) {
  const DU du;
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(DH(), p))));
}

HWY_INLINE void Store(VF v, float* p) { hn::StoreU(v, DF(), p); }
// Rounds to nearest even with integers, as FloatToBf16 does. Adding 0x7fff plus the last kept bit
// carries exactly if the value must be rounded up. A NaN only gets its quiet bit, so that it cannot
// carry to zero.
HWY_INLINE void Store(VF v, bf16_t* p) {
  const DF df;
  const DU du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_number = hn::RebindMask(du, hn::Eq(v, v));
  const auto kept = hn::ShiftRight<16>(hn::IfThenElse(is_number, rounded, quiet));
  hn::StoreU(hn::DemoteTo(DH(), hn::BitCast(hn::RebindToSigned<DF>(), kept)), DH(), p);
  (void)df;
}

// Load and store the first `count` lanes; the other lanes are loaded as zeros.
template <typename T>
HWY_INLINE VF LoadFirst(const T* p, size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(DF())] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = p[i];
  return Load(lanes);
}
template <typename T>
HWY_INLINE void StoreFirst(VF v, T* p, size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(DF())];
  Store(v, lanes);
  for (size_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// Handle whole vectors (kTail false; `count` is ignored) and the tail of a row in one loop body.
template <bool kTail, typename T>
HWY_INLINE VF LoadPart(const T* p, size_t count) {
  if constexpr (kTail) return LoadFirst(p, count);
  return Load(p);
}
template <bool kTail, typename T>
HWY_INLINE void StorePart(VF v, T* p, size_t count) {
  if constexpr (kTail) {
    StoreFirst(v, p, count);
  } else {
    Store(v, p);
  }
}

HWY_INLINE float SumLanes(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }
HWY_INLINE float MaxLanes(VF v) { return hn::GetLane(hn::MaxOfLanes(DF(), v)); }

// exp(x) within 2 units in the last place; 0 below -87.3 (where the result is denormal), infinite
// above 88.7; NaN stays NaN. Derivation: n = round(x / ln 2), r = x - n ln 2 in two steps (the
// first product is exact: 0.693359375 has 9 significant bits), |r| <= 0.347, exp(x) = 2^n exp(r),
// and exp(r) is its Taylor polynomial of degree 7, whose remainder 0.347^8 / 8! = 5e-9 is below
// half a unit in the last place. 2^n is applied in two halves, as n = 128 alone has no FP32 power.
HWY_INLINE VF Exp(VF x) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const VF low = hn::Set(df, -87.33654f);
  const VF high = hn::Set(df, 88.72284f);
  const VF clamped = hn::Min(hn::Max(x, low), high);
  const VF n = hn::Round(hn::Mul(clamped, hn::Set(df, 1.44269504f)));
  VF r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  VF p = hn::Set(df, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const VF scale1 = hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const VF scale2 = hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  VF y = hn::Mul(hn::Mul(p, scale1), scale2);
  y = hn::IfThenZeroElse(hn::Lt(x, low), y);
  y = hn::IfThenElse(hn::Gt(x, high), hn::Inf(df), y);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// exp(x) for x <= 0 or slightly above (softmax): 2^n fits one factor. A NaN comes out as NaN.
HWY_INLINE VF ExpNegative(VF x) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const VF low = hn::Set(df, -87.0f);
  const VF n = hn::Round(hn::Mul(hn::Max(x, low), hn::Set(df, 1.44269504f)));
  VF r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  VF p = hn::Set(df, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, low), hn::Mul(p, hn::BitCast(df, power)));
}

// 1 / (1 + exp(-x)); 0 and 1 at the ends.
HWY_INLINE VF Sigmoid(VF x) {
  const VF one = hn::Set(DF(), 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#endif  // per-target guard

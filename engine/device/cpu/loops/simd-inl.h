// Vector functions for the cpu kernels: loads and stores of FP32 vectors from and to FP32 or BF16
// memory, exponentials, sigmoid and tanh. This file is included once for each instruction set
// (Highway's foreach_target).
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/base/dtype.h"
#include "hwy/highway.h"

#if defined(MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_SIMD_INL_H_
#undef MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_SIMD_INL_H_
#else
#define MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_SIMD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of FP32 (VF), and tags of Highway for vectors with as many lanes of FP32 (DF), uint32_t
// (DU) and uint16_t (DH).
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DH = hn::Rebind<uint16_t, DF>;

// Load and Store move a whole vector, at any address. Store to BF16 rounds as RoundToBf16 does.
HWY_INLINE VF Load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF Load(const bf16_t* p) {
  const DU du;
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(DH(), p))));
}

HWY_INLINE void Store(VF v, float* p) { hn::StoreU(v, DF(), p); }
// Returns the bits of v rounded to BF16 (nearest even, as FloatToBf16 does) in the lower half of
// each lane. Adding 0x7fff plus the last kept bit carries exactly if the value must be rounded up.
// A NaN gets its quiet bit instead, so that it stays a NaN.
HWY_INLINE hn::Vec<DU> RoundToBf16(VF v) {
  const DU du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_number = hn::RebindMask(du, hn::Eq(v, v));
  return hn::ShiftRight<16>(hn::IfThenElse(is_number, rounded, quiet));
}
HWY_INLINE void Store(VF v, bf16_t* p) {
  const auto bits = hn::BitCast(hn::RebindToSigned<DF>(), RoundToBf16(v));
  hn::StoreU(hn::DemoteTo(DH(), bits), DH(), p);
}

// Load and store two vectors of adjacent elements: p[2 i] is lane i of `even`, and p[2 i + 1] is
// lane i of `odd`.
HWY_INLINE void LoadPairs(const float* p, VF& even, VF& odd) {
  hn::LoadInterleaved2(DF(), p, even, odd);
}
HWY_INLINE void LoadPairs(const bf16_t* p, VF& even, VF& odd) {
  const DU du;
  HWY_ALIGN uint32_t lanes[hn::MaxLanes(du)];
  std::memcpy(lanes, p, sizeof(lanes[0]) * hn::Lanes(du));
  const auto words = hn::Load(du, lanes);
  even = hn::BitCast(DF(), hn::ShiftLeft<16>(words));
  odd = hn::BitCast(DF(), hn::AndNot(hn::Set(du, 0xffffu), words));
}
HWY_INLINE void StorePairs(VF even, VF odd, float* p) { hn::StoreInterleaved2(even, odd, DF(), p); }
HWY_INLINE void StorePairs(VF even, VF odd, bf16_t* p) {
  const auto words = hn::Or(RoundToBf16(even), hn::ShiftLeft<16>(RoundToBf16(odd)));
  const DU du;
  HWY_ALIGN uint32_t lanes[hn::MaxLanes(du)];
  hn::Store(words, du, lanes);
  std::memcpy(p, lanes, sizeof(lanes[0]) * hn::Lanes(du));
}

// Load and store the first `count` lanes. The other lanes are loaded as zeros, and not stored.
// REQUIRES: count is at most the number of lanes.
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

// Load and store the tail of a row, its last `count` elements, if kTail is true. Otherwise they
// load and store a whole vector and ignore `count`. So one loop body serves both.
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

// Calls part.operator()<kTail>(i, count) for the vectors of [0, n), each from element i on. kTail
// is false for whole vectors, and true for the rest of n, which comes last if there is one.
template <typename Part>
HWY_INLINE void ForVectors(size_t n, const Part& part) {
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) part.template operator()<false>(i, lanes);
  if (i < n) part.template operator()<true>(i, n - i);
}

// Return the sum of the lanes and the largest lane.
HWY_INLINE float SumLanes(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }
HWY_INLINE float MaxLanes(VF v) { return hn::GetLane(hn::MaxOfLanes(DF(), v)); }

// Returns exp(x) to within 2 units in the last place. It is 0 below -87.33654, where the result
// would be denormal, and infinite above 88.72284. A NaN stays a NaN.
//
// Derivation: with n = round(x / ln 2) and r = x - n ln 2, exp(x) = 2^n exp(r) and |r| <= 0.347. r
// is computed in two steps, of which the first product is exact, because 0.693359375 has 9
// significant bits. exp(r) is its Taylor polynomial of degree 7, whose remainder 0.347^8 / 8! =
// 5e-9 is below half a unit in the last place. 2^n is applied as two factors, because 2^128 is not
// an FP32 number.
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

// Returns exp(x) as Exp does, but faster, for x <= 0 or slightly above, as in a softmax. It needs
// no second factor for 2^n. It is 0 below -87. A NaN stays a NaN.
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

// Returns 1 / (1 + exp(-x)). It is 0 for very negative x and 1 for very large x.
HWY_INLINE VF Sigmoid(VF x) {
  const VF one = hn::Set(DF(), 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

// Returns tanh(x) to within 2 units in the last place (1.4 measured). It is -1 for very negative x
// and 1 for very large x. A NaN stays a NaN.
//
// Derivation: let a = |x|. From a = 0.625 on, tanh(a) = 1 - 2 / (exp(2 a) + 1), whose second term
// is less than the result. Below that, tanh(x) = x + x^3 p(x^2). p is the polynomial of degree 4
// with the least relative error of tanh(x) there, which is 4e-9 before the coefficients are
// rounded.
HWY_INLINE VF Tanh(VF x) {
  const DF df;
  const VF a = hn::Abs(x), one = hn::Set(df, 1.0f), two = hn::Set(df, 2.0f);
  const VF z = hn::Mul(x, x);
  VF p = hn::Set(df, -5.704986397e-3f);
  p = hn::MulAdd(p, z, hn::Set(df, 2.063908614e-2f));
  p = hn::MulAdd(p, z, hn::Set(df, -5.373971537e-2f));
  p = hn::MulAdd(p, z, hn::Set(df, 0.1333144158f));
  p = hn::MulAdd(p, z, hn::Set(df, -0.3333328068f));
  const VF near_zero = hn::MulAdd(hn::Mul(p, z), x, x);
  const VF far = hn::Sub(one, hn::Div(two, hn::Add(Exp(hn::Add(a, a)), one)));
  return hn::IfThenElse(hn::Lt(a, hn::Set(df, 0.625f)), near_zero, hn::CopySign(far, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#endif  // per-target guard

#include "engine/device/cpu/softmax_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/softmax_block.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// The lanes of the vector at i that lie in [begin, end).
HWY_INLINE hn::Mask<DF> Inside(size_t i, size_t begin, size_t end) {
  const DF df;
  const auto until = hn::FirstN(df, end - i);
  return begin <= i ? until : hn::AndNot(hn::FirstN(df, begin - i), until);
}

// Rows are read and written in whole vectors (they are padded to that), masked at the ends.
HWY_INLINE float MaxOfRange(const float* x, size_t begin, size_t end) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  const VF lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
  VF m0 = lowest, m1 = lowest;
  size_t i = begin / lanes * lanes;
  if (i < begin) {
    m0 = hn::IfThenElse(Inside(i, begin, end), Load(x + i), lowest);
    i += lanes;
  }
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    m0 = hn::Max(m0, Load(x + i));
    m1 = hn::Max(m1, Load(x + i + lanes));
  }
  for (; i < end; i += lanes) {
    m0 = hn::Max(m0, hn::IfThenElse(Inside(i, begin, end), Load(x + i), lowest));
  }
  return MaxLanes(hn::Max(m0, m1));
}

// p[i] = exp(scale * x[i] - shift) over [begin, end); the rest of [0, n) is zero. Returns the sum.
template <typename T>
HWY_INLINE float ExpOfRange(const float* x, size_t n, size_t begin, size_t end, float scale,
                            float shift, T* p) {
  const size_t lanes = hn::Lanes(DF());
  const VF factor = hn::Set(DF(), scale), minus = hn::Set(DF(), -shift);
  const auto exp_at = [&](size_t at)
                          HWY_ATTR { return ExpNegative(hn::MulAdd(Load(x + at), factor, minus)); };
  VF s0 = hn::Zero(DF()), s1 = s0;
  size_t i = begin / lanes * lanes;
  std::memset(p, 0, i * sizeof(T));
  if (i < begin) {
    s0 = hn::IfThenElseZero(Inside(i, begin, end), exp_at(i));
    Store(s0, p + i);
    i += lanes;
  }
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    const VF a = exp_at(i), b = exp_at(i + lanes);
    Store(a, p + i);
    Store(b, p + i + lanes);
    s0 = hn::Add(s0, a);
    s1 = hn::Add(s1, b);
  }
  for (; i < end; i += lanes) {
    const VF a = hn::IfThenElseZero(Inside(i, begin, end), exp_at(i));
    Store(a, p + i);
    s0 = hn::Add(s0, a);
  }
  if (i < n) std::memset(p + i, 0, (n - i) * sizeof(T));
  return SumLanes(hn::Add(s0, s1));
}

// tanh(x); a NaN stays one, so that it is noticed.
HWY_INLINE VF TanhOf(VF x) { return hn::IfThenElse(hn::Eq(x, x), hn::Tanh(DF(), x), x); }

// x[i] = softcap * tanh(scale * x[i] / softcap) over [begin, end), and over the rest of the vectors
// at its ends.
void CapRange(float* x, size_t begin, size_t end, float scale, float softcap) {
  const size_t lanes = hn::Lanes(DF());
  const VF inner = hn::Set(DF(), scale / softcap), outer = hn::Set(DF(), softcap);
  for (size_t i = begin / lanes * lanes; i < end; i += lanes) {
    Store(hn::Mul(outer, TanhOf(hn::Mul(Load(x + i), inner))), x + i);
  }
}

template <typename T>
void Step(const SoftmaxStepArgs& args) {
  const size_t lanes = hn::Lanes(DF());
  const int64_t n = args.columns;
  const float scale = args.softcap > 0 ? 1.0f : args.scale;  // of capped scores
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t begin = std::clamp<int64_t>(args.first[row], 0, n);
    const int64_t end = std::clamp<int64_t>(args.last[row], begin, n);
    float* x = args.scores + row * args.stride;
    T* p = static_cast<T*>(args.p) + row * args.p_stride;
    if (begin == end) {
      std::memset(p, 0, static_cast<size_t>(n) * sizeof(T));
      continue;
    }
    if (args.softcap > 0) {
      CapRange(x, static_cast<size_t>(begin), static_cast<size_t>(end), args.scale, args.softcap);
    }
    const float before = args.largest[row];
    const float largest = std::max(
        before, scale * MaxOfRange(x, static_cast<size_t>(begin), static_cast<size_t>(end)));
    const float part = ExpOfRange(x, static_cast<size_t>(n), static_cast<size_t>(begin),
                                  static_cast<size_t>(end), scale, largest, p);
    // exp(-inf) = 0 before the first visible block, whose accumulator is zero.
    const float correction = std::exp(before - largest);
    args.sum[row] = args.sum[row] * correction + part;
    args.largest[row] = largest;
    if (correction != 1.0f) {
      float* accumulator = args.accumulator + row * args.dim;
      const VF factor = hn::Set(DF(), correction);
      int64_t i = 0;
      for (; i + static_cast<int64_t>(lanes) <= args.dim; i += static_cast<int64_t>(lanes)) {
        Store(hn::Mul(Load(accumulator + i), factor), accumulator + i);
      }
      for (; i < args.dim; ++i) accumulator[i] *= correction;
    }
  }
}

template <typename T>
void Finish(const SoftmaxStepArgs& args, T* out, int64_t out_stride, float* lse) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* accumulator = args.accumulator + row * args.dim;
    T* to = out + row * out_stride;
    const VF factor = hn::Set(DF(), 1.0f / args.sum[row]);
    int64_t i = 0;
    for (; i + lanes <= args.dim; i += lanes) Store(hn::Mul(Load(accumulator + i), factor), to + i);
    if (i < args.dim) {
      const size_t rest = static_cast<size_t>(args.dim - i);
      StoreFirst(hn::Mul(LoadFirst(accumulator + i, rest), factor), to + i, rest);
    }
    lse[row] = args.largest[row] + std::log(args.sum[row]);
  }
}

// One vector at i; kMasked: only the lanes in [begin, end) are not zero. The columns' lse and delta
// are not padded, so past the last whole vector they are copied out.
template <bool kMasked, bool kCapped, typename T>
HWY_INLINE void BackwardPart(const SoftmaxBackwardArgs& args, const float* scores, const float* dp,
                             T* p, T* ds, size_t i, size_t begin, size_t end) {
  const size_t lanes = hn::Lanes(DF());
  const VF scale = hn::Set(DF(), args.scale);
  const size_t left = static_cast<size_t>(args.columns) - i;
  const bool whole = !kMasked || left >= lanes;
  const VF lse = whole ? Load(args.lse + i) : LoadFirst(args.lse + i, left);
  const VF delta = whole ? Load(args.delta + i) : LoadFirst(args.delta + i, left);
  VF probability, slope;
  if constexpr (kCapped) {
    const VF t = TanhOf(hn::Mul(Load(scores + i), hn::Set(DF(), args.scale / args.softcap)));
    probability = ExpNegative(hn::MulSub(t, hn::Set(DF(), args.softcap), lse));
    slope = hn::Mul(hn::Mul(probability, scale), hn::Sub(Load(dp + i), delta));
    slope = hn::Mul(slope, hn::NegMulAdd(t, t, hn::Set(DF(), 1.0f)));
  } else {
    probability = ExpNegative(hn::MulSub(Load(scores + i), scale, lse));
    slope = hn::Mul(hn::Mul(probability, scale), hn::Sub(Load(dp + i), delta));
  }
  if constexpr (kMasked) {
    const auto inside = Inside(i, begin, end);
    probability = hn::IfThenElseZero(inside, probability);
    slope = hn::IfThenElseZero(inside, slope);
  }
  Store(probability, p + i);
  Store(slope, ds + i);
}

template <bool kCapped, typename T>
void Backward(const SoftmaxBackwardArgs& args) {
  const size_t lanes = hn::Lanes(DF());
  const int64_t n = args.columns;
  for (int64_t row = 0; row < args.rows; ++row) {
    const size_t begin = static_cast<size_t>(std::clamp<int64_t>(args.first[row], 0, n));
    const size_t end =
        static_cast<size_t>(std::clamp<int64_t>(args.last[row], static_cast<int64_t>(begin), n));
    const float* scores = args.scores + row * args.stride;
    const float* dp = args.dp + row * args.stride;
    T* p = static_cast<T*>(args.p) + row * args.p_stride;
    T* ds = static_cast<T*>(args.ds) + row * args.p_stride;
    size_t i = begin / lanes * lanes;
    std::memset(p, 0, i * sizeof(T));
    std::memset(ds, 0, i * sizeof(T));
    if (i < begin && i < end) {
      BackwardPart<true, kCapped>(args, scores, dp, p, ds, i, begin, end);
      i += lanes;
    }
    for (; i + lanes <= end; i += lanes) {
      BackwardPart<false, kCapped>(args, scores, dp, p, ds, i, begin, end);
    }
    if (i < end) {
      BackwardPart<true, kCapped>(args, scores, dp, p, ds, i, begin, end);
      i += lanes;
    }
    if (i < static_cast<size_t>(n)) {
      std::memset(p + i, 0, (static_cast<size_t>(n) - i) * sizeof(T));
      std::memset(ds + i, 0, (static_cast<size_t>(n) - i) * sizeof(T));
    }
  }
}

template <typename T>
void Dots(int64_t rows, int64_t n, const T* a, const T* b, int64_t stride, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t row = 0; row < rows; ++row, a += stride, b += stride) {
    VF sum = hn::Zero(DF());
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) sum = hn::MulAdd(Load(a + i), Load(b + i), sum);
    if (i < n) {
      const size_t rest = static_cast<size_t>(n - i);
      sum = hn::MulAdd(LoadFirst(a + i, rest), LoadFirst(b + i, rest), sum);
    }
    out[row] = SumLanes(sum);
  }
}

void StepOf(const SoftmaxStepArgs& args) {
  args.dtype == DType::kF32 ? Step<float>(args) : Step<bf16_t>(args);
}

void FinishOf(DType out_dtype, const SoftmaxStepArgs& args, void* out, int64_t out_stride,
              float* lse) {
  if (out_dtype == DType::kF32) {
    Finish(args, static_cast<float*>(out), out_stride, lse);
  } else {
    Finish(args, static_cast<bf16_t*>(out), out_stride, lse);
  }
}

void BackwardOf(const SoftmaxBackwardArgs& args) {
  if (args.softcap > 0) {
    args.dtype == DType::kF32 ? Backward<true, float>(args) : Backward<true, bf16_t>(args);
  } else {
    args.dtype == DType::kF32 ? Backward<false, float>(args) : Backward<false, bf16_t>(args);
  }
}

void DotsOf(DType dtype, int64_t rows, int64_t n, const void* a, const void* b, int64_t stride,
            float* out) {
  if (dtype == DType::kF32) {
    Dots(rows, n, static_cast<const float*>(a), static_cast<const float*>(b), stride, out);
  } else {
    Dots(rows, n, static_cast<const bf16_t*>(a), static_cast<const bf16_t*>(b), stride, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(StepOf);
HWY_EXPORT(FinishOf);
HWY_EXPORT(BackwardOf);
HWY_EXPORT(DotsOf);

void SoftmaxStep(const SoftmaxStepArgs& args) { HWY_DYNAMIC_DISPATCH(StepOf)(args); }

void SoftmaxFinish(const SoftmaxStepArgs& args, DType out_dtype, void* out, int64_t out_stride,
                   float* lse) {
  HWY_DYNAMIC_DISPATCH(FinishOf)(out_dtype, args, out, out_stride, lse);
}

void SoftmaxBackwardBlock(const SoftmaxBackwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(BackwardOf)(args);
}

void RowDots(DType dtype, int64_t rows, int64_t n, const void* a, const void* b, int64_t stride,
             float* out) {
  HWY_DYNAMIC_DISPATCH(DotsOf)(dtype, rows, n, a, b, stride, out);
}

}  // namespace megatrain
#endif  // HWY_ONCE

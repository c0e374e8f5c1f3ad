#include "engine/device/cpu/norm.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

template <typename T>
float SumOfSquaresOfRow(const T* x, size_t n) {
  const size_t lanes = hn::Lanes(DF());
  VF s0 = hn::Zero(DF()), s1 = s0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const VF a = Load(x + i), b = Load(x + i + lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  for (; i + lanes <= n; i += lanes) {
    const VF a = Load(x + i);
    s0 = hn::MulAdd(a, a, s0);
  }
  if (i < n) {
    const VF a = LoadFirst(x + i, n - i);
    s1 = hn::MulAdd(a, a, s1);
  }
  return SumLanes(hn::Add(s0, s1));
}

enum class Weight { kPlain, kOnePlus, kNone };

// Returns the factors of columns from i on.
template <Weight kWeight, bool kTail, typename T>
HWY_INLINE VF WeightAt(const T* weight, size_t i, size_t count) {
  const VF one = hn::Set(DF(), 1.0f);
  if constexpr (kWeight == Weight::kNone) {
    return one;
  } else {
    const VF w = LoadPart<kTail>(weight + i, count);
    return kWeight == Weight::kOnePlus ? hn::Add(one, w) : w;
  }
}

// Calls f with the kind of weight that the arguments name.
template <typename Args, typename F>
void WithWeight(const Args& args, F f) {
  if (args.weight == nullptr) {
    f.template operator()<Weight::kNone>();
  } else if (args.one_plus_weight) {
    f.template operator()<Weight::kOnePlus>();
  } else {
    f.template operator()<Weight::kPlain>();
  }
}

// y = xn * weight (+ addend) of the columns from i on.
template <bool kTail, Weight kWeight, bool kAdd, typename T>
HWY_INLINE void ForwardPart(const T* x, const T* weight, const T* addend, VF rstd, T* y, size_t i,
                            size_t count) {
  const VF xn = hn::Mul(LoadPart<kTail>(x + i, count), rstd);
  const VF w = WeightAt<kWeight, kTail>(weight, i, count);
  if constexpr (kAdd) {
    StorePart<kTail>(hn::MulAdd(xn, w, LoadPart<kTail>(addend + i, count)), y + i, count);
  } else {
    StorePart<kTail>(hn::Mul(xn, w), y + i, count);
  }
}

template <typename T, Weight kWeight, bool kAdd>
void ForwardRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.width);
  const T* weight = static_cast<const T*>(args.weight);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      const T* x = static_cast<const T*>(args.x) + row * args.x_stride + group * args.width;
      const int64_t at = row * args.y_stride + group * args.width;
      T* y = static_cast<T*>(args.y) + at;
      const T* addend = kAdd ? static_cast<const T*>(args.addend) + at : nullptr;
      const float mean = SumOfSquaresOfRow(x, n) / static_cast<float>(n);
      const float rstd = 1.0f / std::sqrt(mean + args.epsilon);
      if (args.rstd) args.rstd[row * args.groups + group] = rstd;
      const VF scale = hn::Set(DF(), rstd);
      size_t i = 0;
      for (; i + lanes <= n; i += lanes) {
        ForwardPart<false, kWeight, kAdd>(x, weight, addend, scale, y, i, lanes);
      }
      if (i < n) ForwardPart<true, kWeight, kAdd>(x, weight, addend, scale, y, i, n - i);
    }
  }
}

// With xn = x * rstd and g = dy * weight, for the columns from i on: dweight += dy * xn; returns
// sum + g * xn.
template <bool kTail, Weight kWeight, typename T>
HWY_INLINE VF BackwardSums(const T* x, const T* weight, const T* dy, VF rstd, float* dweight,
                           size_t i, size_t count, VF sum) {
  const VF xn = hn::Mul(LoadPart<kTail>(x + i, count), rstd);
  const VF dyn = hn::Mul(LoadPart<kTail>(dy + i, count), xn);
  StorePart<kTail>(hn::Add(LoadPart<kTail>(dweight + i, count), dyn), dweight + i, count);
  return hn::MulAdd(dyn, WeightAt<kWeight, kTail>(weight, i, count), sum);
}

// dx = rstd * (g - xn * mean(g * xn)), plus what dx held if kAccumulate.
template <bool kTail, Weight kWeight, bool kAccumulate, typename T>
HWY_INLINE void BackwardInput(const T* x, const T* weight, const T* dy, VF rstd, VF mean, T* dx,
                              size_t i, size_t count) {
  const VF xn = hn::Mul(LoadPart<kTail>(x + i, count), rstd);
  const VF g = hn::Mul(LoadPart<kTail>(dy + i, count), WeightAt<kWeight, kTail>(weight, i, count));
  VF out = hn::Mul(rstd, hn::NegMulAdd(xn, mean, g));
  if constexpr (kAccumulate) out = hn::Add(out, LoadPart<kTail>(dx + i, count));
  StorePart<kTail>(out, dx + i, count);
}

template <typename T, Weight kWeight, bool kAccumulate>
void BackwardRows(const RmsNormBackwardArgs& args, int64_t begin, int64_t end, float* dweight) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.width);
  const T* weight = static_cast<const T*>(args.weight);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      const T* x = static_cast<const T*>(args.x) + row * args.x_stride + group * args.width;
      const T* dy = static_cast<const T*>(args.dy) + row * args.dy_stride + group * args.width;
      T* dx = static_cast<T*>(args.dx) + row * args.dx_stride + group * args.width;
      const VF rstd = hn::Set(DF(), args.rstd[row * args.groups + group]);
      VF sum = hn::Zero(DF());
      size_t i = 0;
      for (; i + lanes <= n; i += lanes) {
        sum = BackwardSums<false, kWeight>(x, weight, dy, rstd, dweight, i, lanes, sum);
      }
      if (i < n) sum = BackwardSums<true, kWeight>(x, weight, dy, rstd, dweight, i, n - i, sum);
      const VF mean = hn::Set(DF(), SumLanes(sum) / static_cast<float>(n));
      for (i = 0; i + lanes <= n; i += lanes) {
        BackwardInput<false, kWeight, kAccumulate>(x, weight, dy, rstd, mean, dx, i, lanes);
      }
      if (i < n) {
        BackwardInput<true, kWeight, kAccumulate>(x, weight, dy, rstd, mean, dx, i, n - i);
      }
    }
  }
}

template <typename T>
void ForwardOf(const RmsNormArgs& args, int64_t begin, int64_t end) {
  WithWeight(args, [&]<Weight kWeight>() {
    args.addend != nullptr ? ForwardRows<T, kWeight, true>(args, begin, end)
                           : ForwardRows<T, kWeight, false>(args, begin, end);
  });
}

template <typename T>
void BackwardOf(const RmsNormBackwardArgs& args, int64_t begin, int64_t end, float* dweight) {
  WithWeight(args, [&]<Weight kWeight>() {
    args.accumulate ? BackwardRows<T, kWeight, true>(args, begin, end, dweight)
                    : BackwardRows<T, kWeight, false>(args, begin, end, dweight);
  });
}

void NormForward(const RmsNormArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? ForwardOf<float>(args, begin, end)
                            : ForwardOf<bf16_t>(args, begin, end);
}

void NormBackward(const RmsNormBackwardArgs& args, int64_t begin, int64_t end, float* dweight) {
  args.dtype == DType::kF32 ? BackwardOf<float>(args, begin, end, dweight)
                            : BackwardOf<bf16_t>(args, begin, end, dweight);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);

void RmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(NormForward)(args, begin, end);
}

void RmsNormBackwardRows(const RmsNormBackwardArgs& args, int64_t begin, int64_t end,
                         float* dweight_part) {
  std::memset(dweight_part, 0, static_cast<size_t>(args.width) * sizeof(float));
  HWY_DYNAMIC_DISPATCH(NormBackward)(args, begin, end, dweight_part);
}

}  // namespace megatrain
#endif  // HWY_ONCE

#include "engine/device/cpu/norm.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/simd-inl.h"

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

template <typename T>
void ForwardRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.width);
  const T* weight = static_cast<const T*>(args.weight);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      const T* x = static_cast<const T*>(args.x) + row * args.x_stride + group * args.width;
      T* y = static_cast<T*>(args.y) + row * args.y_stride + group * args.width;
      const float mean = SumOfSquaresOfRow(x, n) / static_cast<float>(n);
      const float rstd = 1.0f / std::sqrt(mean + args.epsilon);
      if (args.rstd) args.rstd[row * args.groups + group] = rstd;
      const VF scale = hn::Set(DF(), rstd);
      size_t i = 0;
      for (; i + lanes <= n; i += lanes) {
        Store(hn::Mul(hn::Mul(Load(x + i), scale), Load(weight + i)), y + i);
      }
      if (i < n) {
        const size_t rest = n - i;
        StoreFirst(hn::Mul(hn::Mul(LoadFirst(x + i, rest), scale), LoadFirst(weight + i, rest)),
                   y + i, rest);
      }
    }
  }
}

// With xn = x * rstd and g = dy * weight: dweight += dy * xn; returns sum(g * xn) of the part.
template <bool kTail, typename T>
HWY_INLINE VF BackwardSums(const T* x, const T* weight, const T* dy, VF rstd, float* dweight,
                           size_t count, VF sum) {
  const VF xn = hn::Mul(LoadPart<kTail>(x, count), rstd);
  const VF dyn = hn::Mul(LoadPart<kTail>(dy, count), xn);
  StorePart<kTail>(hn::Add(LoadPart<kTail>(dweight, count), dyn), dweight, count);
  return hn::MulAdd(dyn, LoadPart<kTail>(weight, count), sum);
}

// dx = rstd * (g - xn * mean(g * xn)), plus what dx held if kAccumulate.
template <bool kTail, bool kAccumulate, typename T>
HWY_INLINE void BackwardInput(const T* x, const T* weight, const T* dy, VF rstd, VF mean, T* dx,
                              size_t count) {
  const VF xn = hn::Mul(LoadPart<kTail>(x, count), rstd);
  const VF g = hn::Mul(LoadPart<kTail>(dy, count), LoadPart<kTail>(weight, count));
  VF out = hn::Mul(rstd, hn::NegMulAdd(xn, mean, g));
  if constexpr (kAccumulate) out = hn::Add(out, LoadPart<kTail>(dx, count));
  StorePart<kTail>(out, dx, count);
}

template <bool kAccumulate, typename T>
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
        sum = BackwardSums<false>(x + i, weight + i, dy + i, rstd, dweight + i, lanes, sum);
      }
      if (i < n) {
        sum = BackwardSums<true>(x + i, weight + i, dy + i, rstd, dweight + i, n - i, sum);
      }
      const VF mean = hn::Set(DF(), SumLanes(sum) / static_cast<float>(n));
      for (i = 0; i + lanes <= n; i += lanes) {
        BackwardInput<false, kAccumulate>(x + i, weight + i, dy + i, rstd, mean, dx + i, lanes);
      }
      if (i < n) {
        BackwardInput<true, kAccumulate>(x + i, weight + i, dy + i, rstd, mean, dx + i, n - i);
      }
    }
  }
}

void NormForward(const RmsNormArgs& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) {
    ForwardRows<float>(args, begin, end);
  } else {
    ForwardRows<bf16_t>(args, begin, end);
  }
}

void NormBackward(const RmsNormBackwardArgs& args, int64_t begin, int64_t end, float* dweight) {
  if (args.dtype == DType::kF32) {
    args.accumulate ? BackwardRows<true, float>(args, begin, end, dweight)
                    : BackwardRows<false, float>(args, begin, end, dweight);
  } else {
    args.accumulate ? BackwardRows<true, bf16_t>(args, begin, end, dweight)
                    : BackwardRows<false, bf16_t>(args, begin, end, dweight);
  }
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

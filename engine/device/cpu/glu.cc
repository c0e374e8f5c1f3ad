#include "engine/device/cpu/glu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/glu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

template <bool kTail, typename T>
HWY_INLINE void ForwardPart(const T* gate, const T* up, T* out, size_t count) {
  const VF g = LoadPart<kTail>(gate, count);
  StorePart<kTail>(hn::Mul(hn::Mul(g, Sigmoid(g)), LoadPart<kTail>(up, count)), out, count);
}

template <typename T>
void ForwardTokens(const GluArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.width);
  for (int64_t t = begin; t < end; ++t) {
    const T* gate = static_cast<const T*>(args.gate_up) + 2 * t * args.width;
    const T* up = gate + n;
    T* out = static_cast<T*>(args.out) + t * args.width;
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) ForwardPart<false>(gate + i, up + i, out + i, lanes);
    if (i < n) ForwardPart<true>(gate + i, up + i, out + i, n - i);
  }
}

// With s = sigmoid(g): d(g s)/dg = s (1 + g (1 - s)). Everything is read before it is written, so
// dgate and dup may be gate and up. dout becomes what ForwardPart gives.
template <bool kTail, typename T>
HWY_INLINE void BackwardPart(const T* gate, const T* up, T* dout, T* dgate, T* dup, size_t count) {
  const VF one = hn::Set(DF(), 1.0f);
  const VF g = LoadPart<kTail>(gate, count);
  const VF u = LoadPart<kTail>(up, count);
  const VF d = LoadPart<kTail>(dout, count);
  const VF s = Sigmoid(g);
  const VF slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
  const VF silu = hn::Mul(g, s);
  StorePart<kTail>(hn::Mul(hn::Mul(d, u), slope), dgate, count);
  StorePart<kTail>(hn::Mul(d, silu), dup, count);
  StorePart<kTail>(hn::Mul(silu, u), dout, count);
}

template <typename T>
void BackwardTokens(const GluBackwardArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.width);
  for (int64_t t = begin; t < end; ++t) {
    const T* gate = static_cast<const T*>(args.gate_up) + 2 * t * args.width;
    const T* up = gate + n;
    T* dout = static_cast<T*>(args.dout) + t * args.width;
    T* dgate = static_cast<T*>(args.dgate_up) + 2 * t * args.width;
    T* dup = dgate + n;
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      BackwardPart<false>(gate + i, up + i, dout + i, dgate + i, dup + i, lanes);
    }
    if (i < n) BackwardPart<true>(gate + i, up + i, dout + i, dgate + i, dup + i, n - i);
  }
}

void GluForward(const GluArgs& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) {
    ForwardTokens<float>(args, begin, end);
  } else {
    ForwardTokens<bf16_t>(args, begin, end);
  }
}

void GluBack(const GluBackwardArgs& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) {
    BackwardTokens<float>(args, begin, end);
  } else {
    BackwardTokens<bf16_t>(args, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(GluForward);
HWY_EXPORT(GluBack);

void GluTokens(const GluArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GluForward)(args, begin, end);
}

void GluBackwardTokens(const GluBackwardArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GluBack)(args, begin, end);
}

}  // namespace megatrain
#endif  // HWY_ONCE

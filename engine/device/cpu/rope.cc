#include "engine/device/cpu/rope.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/rope.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

template <bool kTail, typename T>
HWY_INLINE void RotatePart(T* first, T* second, const float* cosine, const float* sine, VF sign,
                           size_t count) {
  const VF c = LoadPart<kTail>(cosine, count);
  const VF s = hn::Mul(LoadPart<kTail>(sine, count), sign);
  const VF a = LoadPart<kTail>(first, count);
  const VF b = LoadPart<kTail>(second, count);
  StorePart<kTail>(hn::NegMulAdd(b, s, hn::Mul(a, c)), first, count);
  StorePart<kTail>(hn::MulAdd(a, s, hn::Mul(b, c)), second, count);
}

// Rotates pairs of neighbours; `count` of them in the tail.
template <typename T>
HWY_INLINE void RotateNeighbours(T* x, VF c, VF s) {
  VF a, b;
  LoadPairs(x, a, b);
  StorePairs(hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c)), x);
}
template <bool kTail, typename T>
HWY_INLINE void RotateNeighboursPart(T* x, const float* cosine, const float* sine, VF sign,
                                     size_t count) {
  const VF c = LoadPart<kTail>(cosine, count);
  const VF s = hn::Mul(LoadPart<kTail>(sine, count), sign);
  if constexpr (kTail) {
    HWY_ALIGN T pairs[2 * hn::MaxLanes(DF())] = {};
    std::copy_n(x, 2 * count, pairs);
    RotateNeighbours(pairs, c, s);
    std::copy_n(pairs, 2 * count, x);
  } else {
    RotateNeighbours(x, c, s);
  }
}

template <bool kInterleaved, typename T>
void RotateTokens(const RopeArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t half = static_cast<size_t>(args.rotary_dim / 2);
  const VF sign = hn::Set(DF(), args.inverse ? -1.0f : 1.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float* cosine = args.cosine + args.positions[t] * (args.rotary_dim / 2);
    const float* sine = args.sine + args.positions[t] * (args.rotary_dim / 2);
    for (int64_t h = 0; h < args.heads; ++h) {
      T* first = static_cast<T*>(args.x) + t * args.stride + h * args.head_dim;
      const auto rotate = [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        if constexpr (kInterleaved) {
          RotateNeighboursPart<kTail>(first + 2 * i, cosine + i, sine + i, sign, count);
        } else {
          RotatePart<kTail>(first + i, first + half + i, cosine + i, sine + i, sign, count);
        }
      };
      size_t i = 0;
      for (; i + lanes <= half; i += lanes) rotate.template operator()<false>(i, lanes);
      if (i < half) rotate.template operator()<true>(i, half - i);
    }
  }
}

void Rotate(const RopeArgs& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) {
    args.interleaved ? RotateTokens<true, float>(args, begin, end)
                     : RotateTokens<false, float>(args, begin, end);
  } else {
    args.interleaved ? RotateTokens<true, bf16_t>(args, begin, end)
                     : RotateTokens<false, bf16_t>(args, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(Rotate);

void RopeTokens(const RopeArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Rotate)(args, begin, end);
}

}  // namespace megatrain
#endif  // HWY_ONCE

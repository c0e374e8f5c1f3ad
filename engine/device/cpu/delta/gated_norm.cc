#include "engine/device/cpu/delta/gated_norm.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/delta/gated_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE VF RstdOf(const T* x, size_t n, float epsilon) {
  VF sum = hn::Zero(DF());
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    const VF value = LoadPart<kTail>(x + i, count);
    sum = hn::MulAdd(value, value, sum);
  });
  return hn::Set(DF(), 1.0f / std::sqrt(SumLanes(sum) / static_cast<float>(n) + epsilon));
}

// One vector of a head: the normalised values, the gate's sigmoid and SiLU, and the result. Both
// passes compute it the same way, for the same bits.
struct Gated {
  HWY_INLINE Gated(VF x, VF rstd, VF w, VF g)
      : n(hn::Mul(x, rstd)),
        weighed(hn::Mul(n, w)),
        sigmoid(Sigmoid(g)),
        silu(hn::Mul(g, sigmoid)),
        out(hn::Mul(weighed, silu)) {}

  VF n, weighed, sigmoid, silu, out;
};

template <typename T>
void ForwardTokens(const GatedNormArgs& args, int64_t begin, int64_t end) {
  const size_t n = static_cast<size_t>(args.head_dim);
  const T* const weight = static_cast<const T*>(args.weight);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t at = (t * args.heads + h) * args.head_dim;
      const T* const x = static_cast<const T*>(args.x) + at;
      const T* const gate =
          static_cast<const T*>(args.gate) + t * args.gate_stride + h * args.head_dim;
      T* const out = static_cast<T*>(args.out) + at;
      const VF rstd = RstdOf(x, n, args.epsilon);
      ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        const Gated gated(LoadPart<kTail>(x + i, count), rstd, LoadPart<kTail>(weight + i, count),
                          LoadPart<kTail>(gate + i, count));
        StorePart<kTail>(gated.out, out + i, count);
      });
    }
  }
}

// Everything is read before it is written: dx may be x and dgate may be gate.
template <typename T>
void BackwardTokens(const GatedNormBackwardArgs& args, int64_t begin, int64_t end, float* dweight) {
  const GatedNormArgs& forward = args.forward;
  const size_t n = static_cast<size_t>(forward.head_dim);
  const T* const weight = static_cast<const T*>(forward.weight);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < forward.heads; ++h) {
      const int64_t at = (t * forward.heads + h) * forward.head_dim, head = h * forward.head_dim;
      const T* const x = static_cast<const T*>(forward.x) + at;
      const T* const gate = static_cast<const T*>(forward.gate) + t * forward.gate_stride + head;
      T* const dout = static_cast<T*>(args.dout) + at;
      T* const dx = static_cast<T*>(args.dx) + at;
      T* const dgate = static_cast<T*>(args.dgate) + t * args.dgate_stride + head;
      const VF rstd = RstdOf(x, n, forward.epsilon);
      const auto gated_at = [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        return Gated(LoadPart<kTail>(x + i, count), rstd, LoadPart<kTail>(weight + i, count),
                     LoadPart<kTail>(gate + i, count));
      };
      VF along = hn::Zero(DF());
      ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        const Gated gated = gated_at.template operator()<kTail>(i, count);
        const VF d = LoadPart<kTail>(dout + i, count);
        along = hn::MulAdd(d, gated.out, along);
        StorePart<kTail>(
            hn::MulAdd(d, hn::Mul(gated.n, gated.silu), LoadPart<kTail>(dweight + i, count)),
            dweight + i, count);
      });
      const VF mean = hn::Set(DF(), SumLanes(along) / static_cast<float>(n));
      ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        const Gated gated = gated_at.template operator()<kTail>(i, count);
        const VF d = LoadPart<kTail>(dout + i, count), one = hn::Set(DF(), 1.0f);
        const VF by_norm = hn::Mul(d, hn::Mul(LoadPart<kTail>(weight + i, count), gated.silu));
        const VF slope = hn::Mul(gated.sigmoid, hn::MulAdd(LoadPart<kTail>(gate + i, count),
                                                           hn::Sub(one, gated.sigmoid), one));
        StorePart<kTail>(hn::Mul(rstd, hn::NegMulAdd(gated.n, mean, by_norm)), dx + i, count);
        StorePart<kTail>(hn::Mul(d, hn::Mul(gated.weighed, slope)), dgate + i, count);
        StorePart<kTail>(gated.out, dout + i, count);
      });
    }
  }
}

void NormForward(const GatedNormArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? ForwardTokens<float>(args, begin, end)
                            : ForwardTokens<bf16_t>(args, begin, end);
}

void NormBackward(const GatedNormBackwardArgs& args, int64_t begin, int64_t end, float* dweight) {
  args.forward.dtype == DType::kF32 ? BackwardTokens<float>(args, begin, end, dweight)
                                    : BackwardTokens<bf16_t>(args, begin, end, dweight);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);

void GatedNormTokens(const GatedNormArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(NormForward)(args, begin, end);
}

void GatedNormBackwardTokens(const GatedNormBackwardArgs& args, int64_t begin, int64_t end,
                             float* dweight_part) {
  std::fill_n(dweight_part, args.forward.head_dim, 0.0f);
  HWY_DYNAMIC_DISPATCH(NormBackward)(args, begin, end, dweight_part);
}

}  // namespace megatrain
#endif  // HWY_ONCE

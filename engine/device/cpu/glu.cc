#include "engine/device/cpu/glu.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/glu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// The activations. A unit's output is Of(gate) * Up(up). Of also gives the derivative by the gate
// if `slope` is not null; UpGradient takes the gradient by Up(up) to that by up.
template <GluActivation kActivation>
struct Activation {
  explicit Activation(float, float) {}

  // With s = sigmoid(g): d(g s)/dg = s (1 + g (1 - s)).
  HWY_INLINE VF Of(VF g, VF* slope) const {
    const VF one = hn::Set(DF(), 1.0f);
    const VF s = Sigmoid(g);
    if (slope != nullptr) *slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
    return hn::Mul(g, s);
  }
  HWY_INLINE VF Up(VF u) const { return u; }
  HWY_INLINE VF UpGradient(VF, VF d) const { return d; }
};

// GELU with the tanh approximation is g (1 + tanh(z)) / 2 = g sigmoid(2 z), with z = sqrt(2 / pi)
// (g + 0.044715 g^3). The second form has no cancellation where g is negative. With s = sigmoid(2
// z) its derivative is s + g s (1 - s) d(2 z)/dg.
template <>
struct Activation<GluActivation::kGeluTanh> : Activation<GluActivation::kSilu> {
  using Activation<GluActivation::kSilu>::Activation;

  HWY_INLINE VF Of(VF g, VF* slope) const {
    constexpr float kLinear = 1.5957691216f;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715f * kLinear;
    const DF df;
    const VF square = hn::Mul(g, g), linear = hn::Set(df, kLinear);
    const VF s = Sigmoid(hn::Mul(g, hn::MulAdd(square, hn::Set(df, kCubic), linear)));
    const VF gelu = hn::Mul(g, s);
    if (slope != nullptr) {
      const VF inner = hn::MulAdd(square, hn::Set(df, 3 * kCubic), linear);
      *slope = hn::MulAdd(hn::Mul(gelu, hn::Sub(hn::Set(df, 1.0f), s)), inner, s);
    }
    return gelu;
  }
};

// A NaN stays one.
template <>
struct Activation<GluActivation::kClampedSilu> {
  Activation(float limit, float slope)
      : limit_(hn::Set(DF(), limit)), sigmoid_slope_(hn::Set(DF(), slope)) {}

  HWY_INLINE VF Of(VF g, VF* slope) const {
    const VF one = hn::Set(DF(), 1.0f);
    const auto above = hn::Gt(g, limit_);
    const VF clamped = hn::IfThenElse(above, limit_, g);
    const VF x = hn::Mul(sigmoid_slope_, clamped);
    const VF s = Sigmoid(x);
    if (slope != nullptr) {
      *slope = hn::IfThenZeroElse(above, hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one)));
    }
    return hn::Mul(clamped, s);
  }
  HWY_INLINE VF Up(VF u) const {
    const VF clamped = hn::IfThenElse(hn::Gt(hn::Abs(u), limit_), hn::CopySign(limit_, u), u);
    return hn::Add(clamped, hn::Set(DF(), 1.0f));
  }
  HWY_INLINE VF UpGradient(VF u, VF d) const {
    return hn::IfThenZeroElse(hn::Gt(hn::Abs(u), limit_), d);
  }

 private:
  const VF limit_, sigmoid_slope_;
};

// A token's row of gates and ups: [2, width] or, if kInterleaved, [width, 2].
template <bool kInterleaved, typename T>
struct GateUpRow {
  T* const row;
  const size_t width;

  // Load and store elements [i, i + count).
  template <bool kTail>
  HWY_INLINE void Load(size_t i, size_t count, VF& gate, VF& up) const {
    if constexpr (!kInterleaved) {
      gate = LoadPart<kTail>(row + i, count);
      up = LoadPart<kTail>(row + width + i, count);
    } else if constexpr (kTail) {
      std::remove_const_t<T> pairs[2 * hn::MaxLanes(DF())] = {};
      std::copy(row + 2 * i, row + 2 * (i + count), pairs);
      LoadPairs(pairs, gate, up);
    } else {
      LoadPairs(row + 2 * i, gate, up);
    }
  }
  template <bool kTail>
  HWY_INLINE void Store(VF gate, VF up, size_t i, size_t count) const {
    if constexpr (!kInterleaved) {
      StorePart<kTail>(gate, row + i, count);
      StorePart<kTail>(up, row + width + i, count);
    } else if constexpr (kTail) {
      T pairs[2 * hn::MaxLanes(DF())];
      StorePairs(gate, up, pairs);
      std::copy(pairs, pairs + 2 * count, row + 2 * i);
    } else {
      StorePairs(gate, up, row + 2 * i);
    }
  }
};

template <bool kTail, typename Row, typename T, typename A>
HWY_INLINE void ForwardPart(const A& activation, const Row& gate_up, size_t i, size_t count,
                            T* out) {
  VF gate, up;
  gate_up.template Load<kTail>(i, count, gate, up);
  const VF activated = activation.Of(gate, nullptr);
  StorePart<kTail>(hn::Mul(activated, activation.Up(up)), out + i, count);
}

template <typename T, GluActivation kActivation, bool kInterleaved>
void ForwardTokens(const GluArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.width);
  const Activation<kActivation> activation(args.limit, args.slope);
  for (int64_t t = begin; t < end; ++t) {
    const GateUpRow<kInterleaved, const T> gate_up{
        static_cast<const T*>(args.gate_up) + 2 * t * args.width, n};
    T* out = static_cast<T*>(args.out) + t * args.width;
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) ForwardPart<false>(activation, gate_up, i, lanes, out);
    if (i < n) ForwardPart<true>(activation, gate_up, i, n - i, out);
  }
}

// Everything is read before it is written, so dgate_up may be gate_up. dout becomes what
// ForwardPart gives.
template <bool kTail, typename Row, typename GradientRow, typename T, typename A>
HWY_INLINE void BackwardPart(const A& activation, const Row& gate_up, size_t i, size_t count,
                             T* dout, const GradientRow& dgate_up) {
  VF gate, raw_up, slope;
  gate_up.template Load<kTail>(i, count, gate, raw_up);
  const VF d = LoadPart<kTail>(dout + i, count);
  const VF activated = activation.Of(gate, &slope);
  const VF u = activation.Up(raw_up);
  dgate_up.template Store<kTail>(hn::Mul(hn::Mul(d, u), slope),
                                 activation.UpGradient(raw_up, hn::Mul(d, activated)), i, count);
  StorePart<kTail>(hn::Mul(activated, u), dout + i, count);
}

template <typename T, GluActivation kActivation, bool kInterleaved>
void BackwardTokens(const GluBackwardArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.width);
  const Activation<kActivation> activation(args.limit, args.slope);
  for (int64_t t = begin; t < end; ++t) {
    const GateUpRow<kInterleaved, const T> gate_up{
        static_cast<const T*>(args.gate_up) + 2 * t * args.width, n};
    const GateUpRow<kInterleaved, T> dgate_up{static_cast<T*>(args.dgate_up) + 2 * t * args.width,
                                              n};
    T* dout = static_cast<T*>(args.dout) + t * args.width;
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      BackwardPart<false>(activation, gate_up, i, lanes, dout, dgate_up);
    }
    if (i < n) BackwardPart<true>(activation, gate_up, i, n - i, dout, dgate_up);
  }
}

template <bool kTail, typename T>
HWY_INLINE void GatePart(const T* x, const T* gate, T* out, size_t count) {
  const VF s = Sigmoid(LoadPart<kTail>(gate, count));
  StorePart<kTail>(hn::Mul(LoadPart<kTail>(x, count), s), out, count);
}

template <typename T>
void GateTokens(const SigmoidGateArgs& args, int64_t begin, int64_t end) {
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(args.head_dim);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t at = (t * args.heads + h) * args.head_dim;
      const T* x = static_cast<const T*>(args.x) + at;
      const T* gate =
          static_cast<const T*>(args.gate) + t * args.gate_stride + h * args.gate_head_stride;
      T* out = static_cast<T*>(args.out) + at;
      size_t i = 0;
      for (; i + lanes <= n; i += lanes) GatePart<false>(x + i, gate + i, out + i, lanes);
      if (i < n) GatePart<true>(x + i, gate + i, out + i, n - i);
    }
  }
}

// Everything is read before it is written, so dx may be x and dgate may be gate. dout becomes what
// GatePart gives.
template <bool kTail, typename T>
HWY_INLINE void GateBackwardPart(const T* x, const T* gate, T* dout, T* dx, T* dgate,
                                 size_t count) {
  const VF s = Sigmoid(LoadPart<kTail>(gate, count));
  const VF value = LoadPart<kTail>(x, count);
  const VF d = LoadPart<kTail>(dout, count);
  const VF out = hn::Mul(value, s);
  StorePart<kTail>(hn::Mul(d, s), dx, count);
  StorePart<kTail>(hn::Mul(hn::Mul(d, out), hn::Sub(hn::Set(DF(), 1.0f), s)), dgate, count);
  StorePart<kTail>(out, dout, count);
}

template <typename T>
void GateBackwardTokens(const SigmoidGateBackwardArgs& args, int64_t begin, int64_t end) {
  const SigmoidGateArgs& f = args.forward;
  const size_t lanes = hn::Lanes(DF());
  const size_t n = static_cast<size_t>(f.head_dim);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < f.heads; ++h) {
      const int64_t at = (t * f.heads + h) * f.head_dim;
      const T* x = static_cast<const T*>(f.x) + at;
      const T* gate = static_cast<const T*>(f.gate) + t * f.gate_stride + h * f.gate_head_stride;
      T* dout = static_cast<T*>(args.dout) + at;
      T* dx = static_cast<T*>(args.dx) + at;
      T* dgate = static_cast<T*>(args.dgate) + t * args.dgate_stride + h * args.dgate_head_stride;
      size_t i = 0;
      for (; i + lanes <= n; i += lanes) {
        GateBackwardPart<false>(x + i, gate + i, dout + i, dx + i, dgate + i, lanes);
      }
      if (i < n) GateBackwardPart<true>(x + i, gate + i, dout + i, dx + i, dgate + i, n - i);
    }
  }
}

// Calls run.operator()<T, kActivation, kInterleaved>() for the arguments'.
template <typename Args, typename Run>
void WithUnit(const Args& args, const Run& run) {
  const auto with_activation = [&]<GluActivation kActivation>() {
    const bool fp32 = args.dtype == DType::kF32;
    if (args.interleaved) {
      return fp32 ? run.template operator()<float, kActivation, true>()
                  : run.template operator()<bf16_t, kActivation, true>();
    }
    return fp32 ? run.template operator()<float, kActivation, false>()
                : run.template operator()<bf16_t, kActivation, false>();
  };
  switch (args.activation) {
    case GluActivation::kSilu:
      return with_activation.template operator()<GluActivation::kSilu>();
    case GluActivation::kGeluTanh:
      return with_activation.template operator()<GluActivation::kGeluTanh>();
    case GluActivation::kClampedSilu:
      return with_activation.template operator()<GluActivation::kClampedSilu>();
  }
}

void GluForward(const GluArgs& args, int64_t begin, int64_t end) {
  WithUnit(args, [&]<typename T, GluActivation kActivation, bool kInterleaved>() {
    ForwardTokens<T, kActivation, kInterleaved>(args, begin, end);
  });
}

void GluBack(const GluBackwardArgs& args, int64_t begin, int64_t end) {
  WithUnit(args, [&]<typename T, GluActivation kActivation, bool kInterleaved>() {
    BackwardTokens<T, kActivation, kInterleaved>(args, begin, end);
  });
}

void GateForward(const SigmoidGateArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? GateTokens<float>(args, begin, end)
                            : GateTokens<bf16_t>(args, begin, end);
}

void GateBack(const SigmoidGateBackwardArgs& args, int64_t begin, int64_t end) {
  args.forward.dtype == DType::kF32 ? GateBackwardTokens<float>(args, begin, end)
                                    : GateBackwardTokens<bf16_t>(args, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(GluForward);
HWY_EXPORT(GluBack);
HWY_EXPORT(GateForward);
HWY_EXPORT(GateBack);

void GluTokens(const GluArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GluForward)(args, begin, end);
}

void GluBackwardTokens(const GluBackwardArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GluBack)(args, begin, end);
}

void SigmoidGateTokens(const SigmoidGateArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GateForward)(args, begin, end);
}

void SigmoidGateBackwardTokens(const SigmoidGateBackwardArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GateBack)(args, begin, end);
}

}  // namespace megatrain
#endif  // HWY_ONCE

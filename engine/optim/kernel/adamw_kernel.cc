#include "engine/optim/kernel/adamw_kernel.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "engine/memory/split_master.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/kernel/adamw_kernel.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements of one turn of the loop: a cache line of BF16, two of FP32, so that each line of each
// stream is prefetched once.
constexpr int64_t kTurn = 32;
using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;
using DHalf = hn::Rebind<uint16_t, DU>;

// Asks for the lines of one turn from `p` on.
template <typename T>
HWY_INLINE void PrefetchTurn(const T* p) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < kTurn; i += kLine) hwy::Prefetch(p + i);
}

HWY_INLINE VF LoadGradient(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadGradient(const bf16_t* p) {
  const VU wide = hn::PromoteTo(DU(), hn::LoadU(DHalf(), p));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(wide));
}

// The largest magnitudes seen, as bit patterns: an infinity or a NaN is larger than any number.
struct Extremes {
  VU master;
  VU second_moment;
};

struct Scalars {
  explicit Scalars(const AdamWConstants& c, float decay_factor)
      : gradient_scale(hn::Set(DF(), c.gradient_scale)),
        one_minus_beta1(hn::Set(DF(), c.one_minus_beta1)),
        beta2(hn::Set(DF(), c.beta2)),
        one_minus_beta2(hn::Set(DF(), c.one_minus_beta2)),
        inverse_sqrt_bias2(hn::Set(DF(), c.inverse_sqrt_bias2)),
        epsilon(hn::Set(DF(), c.epsilon)),
        step_size(hn::Set(DF(), c.step_size)),
        decay(hn::Set(DF(), decay_factor)) {}
  VF gradient_scale, one_minus_beta1, beta2, one_minus_beta2, inverse_sqrt_bias2, epsilon,
      step_size, decay;
};

// One vector of each stream. AdamWUpdateReference does the same arithmetic in the same order.
template <bool kSplit, typename G>
HWY_INLINE void UpdateVector(const Scalars& s, const G* HWY_RESTRICT gradient,
                             void* HWY_RESTRICT weights, int16_t* HWY_RESTRICT remainder,
                             float* HWY_RESTRICT exp_avg, float* HWY_RESTRICT exp_avg_sq, int64_t i,
                             Extremes& extremes) {
  const DF df;
  const DU du;
  const DHalf dhalf;
  float* HWY_RESTRICT weights32 = static_cast<float*>(weights);
  bf16_t* HWY_RESTRICT weights16 = static_cast<bf16_t*>(weights);
  uint16_t* HWY_RESTRICT low16 = reinterpret_cast<uint16_t*>(remainder);

  const VF g = hn::Mul(s.gradient_scale, LoadGradient(gradient + i));
  const VF m_old = hn::LoadU(df, exp_avg + i);
  const VF v_old = hn::LoadU(df, exp_avg_sq + i);
  VF p;
  if constexpr (kSplit) {
    const VU high = hn::PromoteTo(du, hn::LoadU(dhalf, weights16 + i));
    const VU low = hn::PromoteTo(du, hn::LoadU(dhalf, low16 + i));
    const VU upper = hn::ShiftLeft<16>(hn::Sub(high, hn::ShiftRight<15>(low)));
    p = hn::BitCast(df, hn::Or(upper, low));
  } else {
    p = hn::LoadU(df, weights32 + i);
  }

  const VF m = hn::MulAdd(s.one_minus_beta1, hn::Sub(g, m_old), m_old);
  const VF v = hn::MulAdd(hn::Mul(s.one_minus_beta2, g), g, hn::Mul(s.beta2, v_old));
  const VF denominator = hn::MulAdd(hn::Sqrt(v), s.inverse_sqrt_bias2, s.epsilon);
  p = hn::NegMulAdd(s.step_size, hn::Div(m, denominator), hn::Mul(s.decay, p));

  hn::StoreU(m, df, exp_avg + i);
  hn::StoreU(v, df, exp_avg_sq + i);
  const VU bits = hn::BitCast(du, p);
  const VU magnitude_mask = hn::Set(du, 0x7fffffffu);
  extremes.master = hn::Max(extremes.master, hn::And(bits, magnitude_mask));
  extremes.second_moment =
      hn::Max(extremes.second_moment, hn::And(hn::BitCast(du, v), magnitude_mask));
  if constexpr (kSplit) {
    const VU carry = hn::And(hn::ShiftRight<15>(bits), hn::Set(du, 1));
    const VU high = hn::Add(hn::ShiftRight<16>(bits), carry);
    hn::StoreU(hn::TruncateTo(dhalf, high), dhalf, weights16 + i);
    hn::StoreU(hn::TruncateTo(dhalf, bits), dhalf, low16 + i);
  } else {
    hn::StoreU(p, df, weights32 + i);
  }
}

template <bool kSplit, typename G>
bool UpdateSpan(const AdamWConstants& constants, float decay, const AdamWSpan& span,
                int64_t ahead) {
  const Scalars scalars(constants, decay);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  using W = std::conditional_t<kSplit, bf16_t, float>;
  const G* const gradient = static_cast<const G*>(span.gradient);
  W* const weights = static_cast<W*>(span.weights);
  Extremes extremes{hn::Zero(DU()), hn::Zero(DU())};

  int64_t i = 0;
  for (; i + kTurn <= span.elements; i += kTurn) {
    // One processor's loop has five to six streams of reads, more than the hardware of some follows
    // well.
    if (ahead > 0) {
      PrefetchTurn(gradient + i + ahead);
      PrefetchTurn(weights + i + ahead);
      if constexpr (kSplit) PrefetchTurn(span.remainder + i + ahead);
      PrefetchTurn(span.exp_avg + i + ahead);
      PrefetchTurn(span.exp_avg_sq + i + ahead);
    }
    for (int64_t j = i; j < i + kTurn; j += lanes) {
      UpdateVector<kSplit>(scalars, gradient, weights, span.remainder, span.exp_avg,
                           span.exp_avg_sq, j, extremes);
    }
  }
  if (i < span.elements) {
    // The rest goes through buffers. Their unused elements are zero in, and zero or (without
    // epsilon) NaN out, so they have moments of 1 and stay numbers.
    const int64_t rest = span.elements - i;
    G g[kTurn] = {};
    W w[kTurn] = {};
    int16_t r[kTurn] = {};
    float m[kTurn], v[kTurn];
    for (int64_t j = 0; j < kTurn; ++j) m[j] = v[j] = 1.0f;
    std::memcpy(g, gradient + i, rest * sizeof(G));
    std::memcpy(w, weights + i, rest * sizeof(W));
    if constexpr (kSplit) std::memcpy(r, span.remainder + i, rest * sizeof(int16_t));
    std::memcpy(m, span.exp_avg + i, rest * sizeof(float));
    std::memcpy(v, span.exp_avg_sq + i, rest * sizeof(float));
    for (int64_t j = 0; j < kTurn; j += lanes) {
      UpdateVector<kSplit>(scalars, g, w, r, m, v, j, extremes);
    }
    std::memcpy(weights + i, w, rest * sizeof(W));
    if constexpr (kSplit) std::memcpy(span.remainder + i, r, rest * sizeof(int16_t));
    std::memcpy(span.exp_avg + i, m, rest * sizeof(float));
    std::memcpy(span.exp_avg_sq + i, v, rest * sizeof(float));
  }

  constexpr uint32_t kInfinity = 0x7f800000u;
  const uint32_t master_limit = kSplit ? kUnencodableMagnitude : kInfinity;
  return hn::GetLane(hn::MaxOfLanes(DU(), extremes.master)) < master_limit &&
         hn::GetLane(hn::MaxOfLanes(DU(), extremes.second_moment)) < kInfinity;
}

bool UpdateSpanDispatch(const AdamWConstants& constants, float decay, DType gradient_dtype,
                        const AdamWSpan& span, int64_t ahead) {
  const bool split = span.remainder != nullptr;
  if (gradient_dtype == DType::kF32) {
    return split ? UpdateSpan<true, float>(constants, decay, span, ahead)
                 : UpdateSpan<false, float>(constants, decay, span, ahead);
  }
  return split ? UpdateSpan<true, bf16_t>(constants, decay, span, ahead)
               : UpdateSpan<false, bf16_t>(constants, decay, span, ahead);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(UpdateSpanDispatch);

AdamWConstants AdamWConstants::Make(const AdamWStep& step) {
  const double exponent = static_cast<double>(step.step);
  const double bias1 = 1 - std::pow(step.beta1, exponent);
  const double bias2 = 1 - std::pow(step.beta2, exponent);
  AdamWConstants c;
  c.gradient_scale = step.gradient_scale;
  c.one_minus_beta1 = static_cast<float>(1 - step.beta1);
  c.beta2 = static_cast<float>(step.beta2);
  c.one_minus_beta2 = static_cast<float>(1 - step.beta2);
  c.inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(bias2));
  c.epsilon = static_cast<float>(step.epsilon);
  c.step_size = static_cast<float>(step.learning_rate / bias1);
  c.decay = static_cast<float>(1 - step.learning_rate * step.weight_decay);
  return c;
}

bool AdamWUpdateSpan(const AdamWConstants& constants, float decay, DType gradient_dtype,
                     const AdamWSpan& span, int prefetch_elements) {
  return HWY_DYNAMIC_DISPATCH(UpdateSpanDispatch)(constants, decay, gradient_dtype, span,
                                                  prefetch_elements);
}

}  // namespace megatrain
#endif  // HWY_ONCE

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
using DHalf = hn::Rebind<uint16_t, DU>;         // a vector's elements in 16 bits
using DHalves = hn::Repartition<uint16_t, DF>;  // two vectors' elements in 16 bits

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

HWY_INLINE VU Magnitude(VF x) { return hn::And(hn::BitCast(DU(), x), hn::Set(DU(), 0x7fffffffu)); }

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

// An update is two halves, and AdamWUpdateReference does the same arithmetic in the same order. The
// first half updates the moments of a turn and leaves the quotients, moment over denominator. The
// second takes them from the masters.
template <typename G>
HWY_INLINE void UpdateMoments(const Scalars& s, const G* HWY_RESTRICT gradient,
                              float* HWY_RESTRICT exp_avg, float* HWY_RESTRICT exp_avg_sq,
                              float* HWY_RESTRICT quotient, Extremes& extremes) {
  const DF df;
  for (int64_t i = 0; i < kTurn; i += static_cast<int64_t>(hn::Lanes(df))) {
    const VF g = hn::Mul(s.gradient_scale, LoadGradient(gradient + i));
    const VF m_old = hn::LoadU(df, exp_avg + i);
    const VF v_old = hn::LoadU(df, exp_avg_sq + i);
    const VF m = hn::MulAdd(s.one_minus_beta1, hn::Sub(g, m_old), m_old);
    const VF v = hn::MulAdd(hn::Mul(s.one_minus_beta2, g), g, hn::Mul(s.beta2, v_old));
    const VF denominator = hn::MulAdd(hn::Sqrt(v), s.inverse_sqrt_bias2, s.epsilon);
    hn::StoreU(m, df, exp_avg + i);
    hn::StoreU(v, df, exp_avg_sq + i);
    hn::Store(hn::Div(m, denominator), df, quotient + i);
    extremes.second_moment = hn::Max(extremes.second_moment, Magnitude(v));
  }
}

// Two vectors of masters, their elements in order.
struct Masters {
  VF first, second;
};

// Load and store the masters from element `at` on. There is a remainder if the weights are BF16.
HWY_INLINE Masters LoadMasters(const float* HWY_RESTRICT weights, const int16_t*, int64_t at) {
  return {hn::LoadU(DF(), weights + at), hn::LoadU(DF(), weights + at + hn::Lanes(DF()))};
}
HWY_INLINE void StoreMasters(const Masters& p, float* HWY_RESTRICT weights, int16_t*, int64_t at) {
  hn::StoreU(p.first, DF(), weights + at);
  hn::StoreU(p.second, DF(), weights + at + hn::Lanes(DF()));
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Masters LoadMasters(const bf16_t* HWY_RESTRICT weights,
                               const int16_t* HWY_RESTRICT remainder, int64_t at) {
  return {hn::Set(DF(), DecodeMaster(weights[at], remainder[at])),
          hn::Set(DF(), DecodeMaster(weights[at + 1], remainder[at + 1]))};
}
HWY_INLINE void StoreMasters(const Masters& p, bf16_t* HWY_RESTRICT weights,
                             int16_t* HWY_RESTRICT remainder, int64_t at) {
  for (const VF master : {p.first, p.second}) {
    const SplitMaster split = EncodeMaster(hn::GetLane(master));
    weights[at] = split.weight;
    remainder[at++] = split.remainder;
  }
}
#else
// These are the formulas of split_master.h, on 16-bit halves. InterleaveLower and InterleaveUpper
// work within blocks of 16 bytes. So groups of four halves are reordered first: the lower groups of
// all blocks become the first vector.
HWY_INLINE Masters LoadMasters(const bf16_t* HWY_RESTRICT weights,
                               const int16_t* HWY_RESTRICT remainder, int64_t at) {
  const DHalves d16;
  const hn::Repartition<uint64_t, DHalves> d64;
  HWY_ALIGN static constexpr uint64_t kOrder[3][8] = {
      {0, 1}, {0, 2, 1, 3}, {0, 4, 1, 5, 2, 6, 3, 7}};  // for 2, 4 and 8 groups
  const auto order = hn::SetTableIndices(d64, kOrder[hn::Lanes(d64) / 4]);
  const auto load = [&](const uint16_t* halves) HWY_ATTR {
    const auto groups = hn::BitCast(d64, hn::LoadU(d16, halves + at));
    return hn::BitCast(d16, hn::TableLookupLanes(groups, order));
  };
  const auto low = load(reinterpret_cast<const uint16_t*>(remainder));
  const auto high = hn::Sub(load(weights), hn::ShiftRight<15>(low));
  return {hn::BitCast(DF(), hn::InterleaveLower(d16, low, high)),
          hn::BitCast(DF(), hn::InterleaveUpper(d16, low, high))};
}
HWY_INLINE void StoreMasters(const Masters& p, bf16_t* HWY_RESTRICT weights,
                             int16_t* HWY_RESTRICT remainder, int64_t at) {
  const DHalves d16;
  const auto first = hn::BitCast(d16, p.first);
  const auto second = hn::BitCast(d16, p.second);
  const auto low = hn::ConcatEven(d16, second, first);
  const auto high = hn::ConcatOdd(d16, second, first);
  hn::StoreU(hn::Add(high, hn::ShiftRight<15>(low)), d16, weights + at);
  hn::StoreU(low, d16, reinterpret_cast<uint16_t*>(remainder) + at);
}
#endif

template <typename W>
HWY_INLINE void UpdateMasters(const Scalars& s, const float* HWY_RESTRICT quotient,
                              W* HWY_RESTRICT weights, int16_t* HWY_RESTRICT remainder,
                              int64_t begin, Extremes& extremes) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  for (int64_t i = 0; i < kTurn; i += 2 * lanes) {
    Masters p = LoadMasters(weights, remainder, begin + i);
    p.first = hn::NegMulAdd(s.step_size, hn::Load(df, quotient + i), hn::Mul(s.decay, p.first));
    p.second =
        hn::NegMulAdd(s.step_size, hn::Load(df, quotient + i + lanes), hn::Mul(s.decay, p.second));
    StoreMasters(p, weights, remainder, begin + i);
    extremes.master = hn::Max(extremes.master, hn::Max(Magnitude(p.first), Magnitude(p.second)));
  }
}

template <bool kSplit, typename G>
bool UpdateSpan(const AdamWConstants& constants, float decay, const AdamWSpan& span,
                int64_t ahead) {
  const Scalars scalars(constants, decay);
  using W = std::conditional_t<kSplit, bf16_t, float>;
  const G* const gradient = static_cast<const G*>(span.gradient);
  W* const weights = static_cast<W*>(span.weights);
  Extremes extremes{hn::Zero(DU()), hn::Zero(DU())};
  HWY_ALIGN float quotient[2][kTurn];  // of even and of odd turns

  // The masters are a turn behind the moments: the processor divides for one turn while it takes
  // the masters of the other apart. In one pass its registers would be full of instructions that
  // wait for a quotient.
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
    const int64_t turn = i / kTurn;
    UpdateMoments(scalars, gradient + i, span.exp_avg + i, span.exp_avg_sq + i, quotient[turn % 2],
                  extremes);
    if (i > 0) {
      UpdateMasters(scalars, quotient[(turn + 1) % 2], weights, span.remainder, i - kTurn,
                    extremes);
    }
  }
  if (i > 0) {
    UpdateMasters(scalars, quotient[(i / kTurn + 1) % 2], weights, span.remainder, i - kTurn,
                  extremes);
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
    UpdateMoments(scalars, g, m, v, quotient[0], extremes);
    UpdateMasters(scalars, quotient[0], w, r, 0, extremes);
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

AdamWConstants AdamWConstants::Make(const AdamWStep& step, int rate_group) {
  const AdamWRates own = rate_group == 0 ? AdamWRates{step.learning_rate, step.weight_decay}
                                         : step.groups[static_cast<size_t>(rate_group) - 1];
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
  c.step_size = static_cast<float>(own.learning_rate / bias1);
  c.decay = static_cast<float>(1 - own.learning_rate * own.weight_decay);
  return c;
}

bool AdamWUpdateSpan(const AdamWConstants& constants, float decay, DType gradient_dtype,
                     const AdamWSpan& span, int prefetch_elements) {
  return HWY_DYNAMIC_DISPATCH(UpdateSpanDispatch)(constants, decay, gradient_dtype, span,
                                                  prefetch_elements);
}

}  // namespace megatrain
#endif  // HWY_ONCE

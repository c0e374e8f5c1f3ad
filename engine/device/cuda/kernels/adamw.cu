// AdamW with the bits of the host's kernel (engine/optim/kernel/adamw_kernel.cc): the same products
// and sums fused, the same order, every operation rounded to nearest.
//
// The host's threads flush denormals: an operand that is one counts as zero, and so does a result
// that would be one. A GPU can do so too, but does not say whether it judges a result before or
// after rounding it, and the two differ where rounding makes the smallest normal number of it. So
// denormals are kept by the instructions here and flushed by hand, as x86 does: after rounding to
// 24 bits.
#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kCount = kPackCount<float>;

// Hosts of other kinds do not flush (engine/base/thread_pool.cc).
#if defined(__x86_64__)
constexpr bool kFlush = true;
#else
constexpr bool kFlush = false;
#endif
constexpr uint32_t kSign = 0x80000000u, kMagnitude = 0x7fffffffu;
constexpr uint32_t kSmallestNormal = 0x00800000u;  // 2^-126
// From here on a magnitude rounds to 2^-126 or more: halfway between 2^-126 and the number of 24
// bits before it.
constexpr double kNormalFrom = 0x1.ffffffp-127;

__device__ float SignedZero(float x) { return __uint_as_float(__float_as_uint(x) & kSign); }

// Operands, and results that are exact where they are small.
__device__ float Flush(float x) {
  return kFlush && (__float_as_uint(x) & kMagnitude) < kSmallestNormal ? SignedZero(x) : x;
}
// Returns true if the value that a result was rounded from must be examined.
__device__ bool Borderline(float x) {
  return kFlush && (__float_as_uint(x) & kMagnitude) == kSmallestNormal;
}

__device__ float Product(float a, float b) {
  const float r = __fmul_rn(a, b);
  if (Borderline(r) && fabs(static_cast<double>(a) * b) < kNormalFrom) return SignedZero(r);
  return Flush(r);
}

__device__ float Quotient(float a, float b) {
  const float r = __fdiv_rn(a, b);
  // No quotient of two numbers of 24 bits is nearer to the bound than FP64 can tell.
  if (Borderline(r) && fabs(static_cast<double>(a) / b) < kNormalFrom) return SignedZero(r);
  return Flush(r);
}

// a * b + c
__device__ float Fused(float a, float b, float c) {
  const float r = __fmaf_rn(a, b, c);
  if (Borderline(r)) {
    // Exact as a sum of two (Knuth's).
    const double product = static_cast<double>(a) * b, sum = product + c, part = sum - product;
    const double error = (product - (sum - part)) + (c - part);
    const double beyond = (sum < 0 ? -error : error), magnitude = fabs(sum);
    if (magnitude < kNormalFrom || (magnitude == kNormalFrom && beyond < 0)) return SignedZero(r);
  }
  return Flush(r);
}

// As split_master.h decodes it. Widened, the halves are the upper ones of their words.
__device__ float Master(float weight, float remainder) {
  const uint32_t low = __float_as_uint(remainder) >> 16;
  return __uint_as_float((__float_as_uint(weight) - (low >> 15 << 16)) | low);
}

// One element; returns whether it can be trusted (AdamWUpdateSpan).
template <bool kSplit>
__device__ bool Update(const AdamWConstants& c, float decay, float raw, float& p, float& m,
                       float& v) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr uint32_t kUnencodable = 0x7f7f8000u;
  const float g = Product(c.gradient_scale, Flush(raw));
  const float m_old = Flush(m);
  m = Fused(c.one_minus_beta1, Flush(__fsub_rn(g, m_old)), m_old);
  v = Fused(Product(c.one_minus_beta2, g), g, Product(c.beta2, Flush(v)));
  const float denominator = Fused(__fsqrt_rn(v), c.inverse_sqrt_bias2, c.epsilon);
  p = Fused(-c.step_size, Quotient(m, denominator), Product(decay, Flush(p)));
  return (__float_as_uint(p) & kMagnitude) < (kSplit ? kUnencodable : kInfinity) &&
         (__float_as_uint(v) & kMagnitude) < kInfinity;
}

// Packs of kElements; what does not fill one is the caller's.
template <typename G, typename W, int kElements>
__global__ void __launch_bounds__(kThreads) AdamWKernel(AdamWArgs args) {
  constexpr bool kSplit = sizeof(W) == sizeof(Bf16);
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kElements;
  const bool there = first + kElements <= args.span.elements;
  if (!there) return;
  W* const weights = static_cast<W*>(args.span.weights) + first;
  Bf16* const remainder = reinterpret_cast<Bf16*>(args.span.remainder) + (kSplit ? first : 0);
  float* const exp_avg = args.span.exp_avg + first;
  float* const exp_avg_sq = args.span.exp_avg_sq + first;
  const auto gradient_pack =
      LoadPack<G, kElements>(static_cast<const G*>(args.span.gradient) + first);
  const auto weight_pack = LoadPack<W, kElements>(weights);
  Pack<Bf16, kElements> remainder_pack = {};
  if constexpr (kSplit) remainder_pack = LoadPack<Bf16, kElements>(remainder);
  const auto m_pack = LoadPack<float, kElements>(exp_avg);
  const auto v_pack = LoadPack<float, kElements>(exp_avg_sq);

  float g[kElements], w[kElements], r[kElements], m[kElements], v[kElements];
  Widen(gradient_pack, g);
  Widen(weight_pack, w);
  if constexpr (kSplit) Widen(remainder_pack, r);
  Widen(m_pack, m);
  Widen(v_pack, v);
  uint32_t high[kElements], low[kElements];
  bool trusted = true;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    float p = w[i];
    if constexpr (kSplit) p = Master(w[i], r[i]);
    trusted &= Update<kSplit>(args.constants, args.decays ? args.constants.decay : 1.0f, g[i], p,
                              m[i], v[i]);
    const uint32_t bits = __float_as_uint(p);
    if constexpr (kSplit) {
      high[i] = ((bits >> 16) + ((bits >> 15) & 1u)) & 0xffffu;
      low[i] = bits & 0xffffu;
    } else {
      w[i] = p;
    }
  }
  Store(m, exp_avg);
  Store(v, exp_avg_sq);
  if constexpr (!kSplit) {
    Store(w, weights);
  } else {
    Pack<Bf16, kElements> to_weights, to_remainder;
    if constexpr (kElements == 1) {
      to_weights.words[0] = static_cast<uint16_t>(high[0]);
      to_remainder.words[0] = static_cast<uint16_t>(low[0]);
    } else {
#pragma unroll
      for (int i = 0; i < kElements; i += 2) {
        to_weights.words[i / 2] = high[i] | high[i + 1] << 16;
        to_remainder.words[i / 2] = low[i] | low[i + 1] << 16;
      }
    }
    StorePack(to_weights, weights);
    StorePack(to_remainder, remainder);
  }
  if (!trusted) atomicOr(args.untrusted, 1);
}

// `args` from element `begin` on.
AdamWArgs From(AdamWArgs args, int64_t begin) {
  const int64_t weight_bytes = args.span.remainder == nullptr ? 4 : 2;
  args.span.gradient =
      static_cast<const char*>(args.span.gradient) + begin * DTypeBytes(args.gradient_dtype);
  args.span.weights = static_cast<char*>(args.span.weights) + begin * weight_bytes;
  if (args.span.remainder != nullptr) args.span.remainder += begin;
  args.span.exp_avg += begin;
  args.span.exp_avg_sq += begin;
  args.span.elements -= begin;
  return args;
}

template <typename G, typename W>
int LaunchAdamW(const Queue& queue, const AdamWArgs& args) {
  const AdamWSpan& span = args.span;
  int64_t done = 0;
  if (MovesPacks(queue,
                 {span.gradient, span.weights, span.remainder, span.exp_avg, span.exp_avg_sq},
                 {})) {
    done = span.elements / kCount * kCount;
    if (done > 0) {
      const int error = Launch(AdamWKernel<G, W, kCount>, Grid(CeilDiv(done / kCount, kThreads)),
                               kThreads, 0, queue, args);
      if (error != 0) return error;
    }
  }
  if (done == span.elements) return 0;
  return Launch(AdamWKernel<G, W, 1>, Grid(CeilDiv(span.elements - done, kThreads)), kThreads, 0,
                queue, From(args, done));
}

}  // namespace

int AdamW(const Queue& queue, const AdamWArgs& args) {
  const bool split = args.span.remainder != nullptr;
  if (args.gradient_dtype == DType::kF32) {
    return split ? LaunchAdamW<float, Bf16>(queue, args) : LaunchAdamW<float, float>(queue, args);
  }
  return split ? LaunchAdamW<Bf16, Bf16>(queue, args) : LaunchAdamW<Bf16, float>(queue, args);
}

}  // namespace megatrain::cuda

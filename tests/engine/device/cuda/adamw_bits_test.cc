// The device's AdamW has the host's bits, over every kind of number. The suite runs a few millions
// of elements; MEGATRAIN_ADAMW_ELEMENTS asks for more by hand.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/memory/split_master.h"
#include "engine/optim/adamw.h"
#include "engine/optim/kernel/adamw_kernel.h"

namespace megatrain {
namespace {

constexpr int64_t kSpanElements = 50'003;  // not whole packs
constexpr float kSmallestNormal = 0x1p-126f;

int64_t Elements() {
  const char* const asked = std::getenv("MEGATRAIN_ADAMW_ELEMENTS");
  return asked == nullptr ? 2'000'000 : std::atoll(asked);
}

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : random_(seed) {}

  uint32_t Bits() { return static_cast<uint32_t>(random_()); }
  int Choice(int n) { return static_cast<int>(Bits() % static_cast<uint32_t>(n)); }
  // Any finite pattern: denormals, zeros of both signs, extremes.
  float Finite() {
    while (true) {
      const float x = std::bit_cast<float>(Bits());
      if (std::isfinite(x)) return x;
    }
  }
  // Within a few units of the last place of `x`.
  float Near(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>(bits + static_cast<uint32_t>(Choice(9)) - 4);
  }
  // Around what flushing decides: denormals and the smallest normal numbers.
  float Tiny() {
    const uint32_t sign = Bits() & 0x80000000u;
    switch (Choice(3)) {
      case 0:
        return std::bit_cast<float>(sign | (Bits() & 0x007fffffu));
      case 1:
        return std::bit_cast<float>(sign | (0x00800000u + (Bits() & 0x01ffffffu)));
      default:
        return Near(kSmallestNormal);
    }
  }
  float Normal() {
    return std::normal_distribution<float>()(random_) *
           std::exp2(static_cast<float>(Choice(40) - 30));
  }
  // One of all kinds. What is `by` it goes to the edge of the normal numbers in a product.
  float Any(float by) {
    switch (Choice(6)) {
      case 0:
        return Finite();
      case 1:
        return Tiny();
      case 2:
        return by == 0 ? 0.0f : Near(kSmallestNormal / by);
      case 3:
        return Choice(2) == 0 ? 0.0f : -0.0f;
      default:
        return Normal();
    }
  }

 private:
  std::mt19937_64 random_;
};

AdamWConstants RandomConstants(Numbers& numbers) {
  AdamWConstants c;
  const auto unit = [&numbers] { return static_cast<float>(numbers.Bits() >> 8) * 0x1p-24f; };
  switch (numbers.Choice(4)) {
    case 0: {  // a job's
      AdamWStep step;
      step.step = 1 + numbers.Choice(1000);
      step.learning_rate = std::pow(10.0, -6 * unit());
      step.weight_decay = unit();
      step.gradient_scale = unit();
      return AdamWConstants::Make(step);
    }
    case 1:  // quotients and products at the edge of the normal numbers
      c.gradient_scale = 1;
      c.one_minus_beta1 = 0x1p-30f;
      c.beta2 = 0.5f;
      c.one_minus_beta2 = 0.5f;
      c.inverse_sqrt_bias2 = 1;
      c.epsilon = numbers.Choice(2) == 0 ? 2.0f : 1 + unit();
      c.step_size = 1;
      c.decay = 1 - unit();
      return c;
    case 2:  // without moments
      c.gradient_scale = 1 - unit();
      c.one_minus_beta1 = 1;
      c.beta2 = 0;
      c.one_minus_beta2 = 1;
      c.epsilon = 1e-30f;
      c.step_size = unit();
      return c;
    default:
      c.gradient_scale = std::ldexp(unit(), -numbers.Choice(120));
      c.one_minus_beta1 = unit();
      c.beta2 = unit();
      c.one_minus_beta2 = 1 - c.beta2;
      c.inverse_sqrt_bias2 = 1 + 100 * unit();
      c.epsilon = std::ldexp(unit() + 1, -numbers.Choice(90));
      c.step_size = std::ldexp(unit(), 20 - numbers.Choice(140));
      c.decay = unit();
      return c;
  }
}

struct State {
  explicit State(DType weight_dtype)
      : split(weight_dtype == DType::kBF16),
        weights(kSpanElements * (split ? 2 : 4)),
        remainder(split ? kSpanElements : 0),
        exp_avg(kSpanElements),
        exp_avg_sq(kSpanElements) {}

  AdamWSpan Span(const std::vector<char>& gradient) {
    return {gradient.data(), weights.data(),    split ? remainder.data() : nullptr,
            exp_avg.data(),  exp_avg_sq.data(), kSpanElements};
  }
  float Master(int64_t i) const {
    if (split) {
      return DecodeMaster(reinterpret_cast<const bf16_t*>(weights.data())[i], remainder[i]);
    }
    return reinterpret_cast<const float*>(weights.data())[i];
  }
  void SetMaster(int64_t i, float master) {
    if (split) {
      const SplitMaster halves = EncodeMaster(master);
      reinterpret_cast<bf16_t*>(weights.data())[i] = halves.weight;
      remainder[i] = halves.remainder;
    } else {
      reinterpret_cast<float*>(weights.data())[i] = master;
    }
  }

  bool split;
  std::vector<char> weights;
  std::vector<int16_t> remainder;
  std::vector<float> exp_avg, exp_avg_sq;
};

void Fill(Numbers& numbers, const AdamWConstants& c, DType gradient_dtype, State& state,
          std::vector<char>& gradient) {
  const bool bad = numbers.Choice(8) == 0;  // infinities and NaNs among them
  for (int64_t i = 0; i < kSpanElements; ++i) {
    state.SetMaster(i, numbers.Any(numbers.Choice(2) == 0 ? c.decay : 1.0f));
    state.exp_avg[i] = numbers.Any(numbers.Choice(2) == 0 ? 1 / c.epsilon : c.one_minus_beta1);
    // Also 0, for quotients by epsilon alone.
    state.exp_avg_sq[i] = numbers.Choice(3) == 0 ? 0.0f : std::fabs(numbers.Any(c.beta2));
    float g = numbers.Any(numbers.Choice(2) == 0 ? c.gradient_scale : c.one_minus_beta2);
    if (numbers.Choice(4) == 0) g = 0;
    if (bad && numbers.Choice(1000) == 0) g = std::bit_cast<float>(numbers.Bits() | 0x7f800000u);
    if (gradient_dtype == DType::kF32) {
      std::memcpy(&gradient[static_cast<size_t>(4 * i)], &g, 4);
    } else {
      const bf16_t half = FloatToBf16(g);
      std::memcpy(&gradient[static_cast<size_t>(2 * i)], &half, 2);
    }
  }
}

bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

class AdamWBitsTest : public testing::TestWithParam<std::tuple<DType, DType>> {};

TEST_P(AdamWBitsTest, AreTheHosts) {
  const auto [weight_dtype, gradient_dtype] = GetParam();
  Numbers numbers(static_cast<uint64_t>(Elements()) + 17 * (weight_dtype == DType::kBF16) +
                  31 * (gradient_dtype == DType::kBF16));
  ThreadPool pool(1);
  std::vector<char> gradient(static_cast<size_t>(kSpanElements * DTypeBytes(gradient_dtype)));
  int64_t trusted_spans = 0;
  for (int64_t done = 0; done < Elements(); done += kSpanElements) {
    AdamWArgs args;
    args.constants = RandomConstants(numbers);
    args.decays = numbers.Choice(4) != 0;
    args.gradient_dtype = gradient_dtype;
    State host(weight_dtype);
    Fill(numbers, args.constants, gradient_dtype, host, gradient);
    const State before = host;
    State device = host;
    // The pool's threads flush denormals; this one, as the device, does not.
    bool trusted = false;
    pool.ParallelFor(1, [&](int64_t) {
      trusted = AdamWUpdateSpan(args.constants, args.decays ? args.constants.decay : 1.0f,
                                gradient_dtype, host.Span(gradient));
    });
    int32_t untrusted = 0;
    args.span = device.Span(gradient);
    args.untrusted = &untrusted;
    ASSERT_EQ(cuda::AdamW(nullptr, args), 0);
    ASSERT_EQ(untrusted == 0, trusted);
    trusted_spans += trusted;
    for (int64_t i = 0; i < kSpanElements; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_TRUE(Same(device.Master(i), host.Master(i)) &&
                  Same(device.exp_avg[at], host.exp_avg[at]) &&
                  Same(device.exp_avg_sq[at], host.exp_avg_sq[at]))
          << std::hexfloat << "element " << i << " with master " << before.Master(i) << ", moments "
          << before.exp_avg[at] << " and " << before.exp_avg_sq[at] << ": device "
          << device.Master(i) << " " << device.exp_avg[at] << " " << device.exp_avg_sq[at]
          << ", host " << host.Master(i) << " " << host.exp_avg[at] << " " << host.exp_avg_sq[at];
    }
  }
  RecordProperty("trusted_spans", static_cast<int>(trusted_spans));
}

// An update of what is not aligned for packs, and one of no element.
TEST_P(AdamWBitsTest, OfAnyPlaceAndLength) {
  const auto [weight_dtype, gradient_dtype] = GetParam();
  Numbers numbers(5);
  ThreadPool pool(1);
  std::vector<char> gradient(static_cast<size_t>(kSpanElements * DTypeBytes(gradient_dtype)));
  for (const int64_t begin : {0, 1, 4}) {
    for (const int64_t elements : {0, 3, 4, 1027}) {
      AdamWArgs args;
      args.constants = RandomConstants(numbers);
      args.gradient_dtype = gradient_dtype;
      State host(weight_dtype);
      Fill(numbers, args.constants, gradient_dtype, host, gradient);
      State device = host;
      const auto part = [&](State& state) {
        AdamWSpan span = state.Span(gradient);
        span.gradient = gradient.data() + begin * DTypeBytes(gradient_dtype);
        span.weights = state.weights.data() + begin * DTypeBytes(weight_dtype);
        if (span.remainder != nullptr) span.remainder += begin;
        span.exp_avg += begin;
        span.exp_avg_sq += begin;
        span.elements = elements;
        return span;
      };
      pool.ParallelFor(
          1, [&](int64_t) { AdamWUpdateSpan(args.constants, 1.0f, gradient_dtype, part(host)); });
      int32_t untrusted = 0;
      args.span = part(device);
      args.untrusted = &untrusted;
      ASSERT_EQ(cuda::AdamW(nullptr, args), 0);
      for (int64_t i = 0; i < 2000; ++i) {
        ASSERT_TRUE(Same(device.Master(i), host.Master(i)));
        ASSERT_TRUE(
            Same(device.exp_avg[static_cast<size_t>(i)], host.exp_avg[static_cast<size_t>(i)]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AdamWBitsTest,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const testing::TestParamInfo<AdamWBitsTest::ParamType>& info) {
                           return std::string("weights") + DTypeName(std::get<0>(info.param)) +
                                  "gradients" + DTypeName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace megatrain

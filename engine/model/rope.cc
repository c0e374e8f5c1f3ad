#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megatrain {
namespace {

// theta^(2 i / rotary_dim), in FP32.
float Wavelength(const RopeConfig& rope, int64_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
  const double base = static_cast<float>(rope.theta);
  return static_cast<float>(std::pow(base, static_cast<double>(exponent)));
}

// Long wavelengths are stretched by `factor`, short ones kept, those between blended.
float Llama3Frequency(const RopeConfig& rope, float frequency) {
  const float factor = static_cast<float>(rope.factor);
  const double context = static_cast<double>(rope.original_positions);
  const float wavelength = (1.0f / frequency) * static_cast<float>(2.0 * std::numbers::pi);
  if (wavelength > static_cast<float>(context / rope.low_frequency_factor)) {
    return frequency / factor;
  }
  if (wavelength < static_cast<float>(context / rope.high_frequency_factor)) return frequency;
  const float smooth = ((1.0f / wavelength) * static_cast<float>(context) -
                        static_cast<float>(rope.low_frequency_factor)) /
                       static_cast<float>(rope.high_frequency_factor - rope.low_frequency_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

// Dimensions that turn more than beta_fast times over the original context keep their frequency
// (extrapolation), those that turn less than beta_slow times are slowed by `factor`
// (interpolation), with a linear ramp between.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeConfig& rope) {
    const double dim = static_cast<double>(rope.rotary_dim);
    // The dimension that turns `rotations` times over the original context.
    const auto dimension = [&](double rotations) {
      return dim *
             std::log(static_cast<double>(rope.original_positions) /
                      (rotations * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(rope.theta));
    };
    double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1.0);
    if (low == high) high += 0.001;  // no division by zero
    low_ = static_cast<float>(low);
    width_ = static_cast<float>(high - low);
  }
  float Extrapolation(int64_t i) const {
    return 1.0f - std::clamp((static_cast<float>(i) - low_) / width_, 0.0f, 1.0f);
  }

 private:
  float low_;
  float width_;
};

}  // namespace

std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int64_t sequence_length) {
  const int64_t count = rope.rotary_dim / 2;
  std::vector<float> frequencies(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) frequencies[i] = 1.0f / Wavelength(rope, i);
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kProportional:
      std::fill(frequencies.begin() + rope.turning_pairs, frequencies.end(), 0.0f);
      [[fallthrough]];
    case RopeType::kLinear:
      for (float& frequency : frequencies) frequency /= static_cast<float>(rope.factor);
      break;
    case RopeType::kLlama3:
      for (float& frequency : frequencies) frequency = Llama3Frequency(rope, frequency);
      break;
    case RopeType::kYarn: {
      const YarnRamp ramp(rope);
      for (int64_t i = 0; i < count; ++i) {
        const float interpolated = 1.0f / (static_cast<float>(rope.factor) * Wavelength(rope, i));
        const float extrapolation = ramp.Extrapolation(i);
        frequencies[i] = interpolated * (1.0f - extrapolation) + frequencies[i] * extrapolation;
      }
      break;
    }
    case RopeType::kLongrope: {
      const std::vector<double>& factors =
          sequence_length > rope.original_positions ? rope.long_factors : rope.short_factors;
      for (int64_t i = 0; i < count; ++i) {
        frequencies[i] = 1.0f / (static_cast<float>(factors[i]) * Wavelength(rope, i));
      }
      break;
    }
  }
  return frequencies;
}

float RopeAttentionFactor(const RopeConfig& rope) {
  if (rope.type != RopeType::kYarn && rope.type != RopeType::kLongrope) return 1.0f;
  if (rope.attention_factor > 0.0) return static_cast<float>(rope.attention_factor);
  if (rope.factor <= 1.0) return 1.0f;
  if (rope.type == RopeType::kYarn) return static_cast<float>(0.1 * std::log(rope.factor) + 1.0);
  return static_cast<float>(std::sqrt(
      1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_positions))));
}

void RopeTables(const RopeConfig& rope, int64_t sequence_length, int64_t begin, int64_t end,
                float* cosine, float* sine) {
  const std::vector<float> frequencies = RopeInverseFrequencies(rope, sequence_length);
  const float constant = RopeAttentionFactor(rope);
  for (int64_t position = begin; position < end; ++position) {
    float scale = constant;
    if (rope.position_scale > 0) {
      const double turns =
          std::floor(static_cast<double>(position) / static_cast<double>(rope.original_positions));
      scale *= static_cast<float>(1.0 + rope.position_scale * std::log1p(turns));
    }
    for (const float frequency : frequencies) {
      // The angle is rounded to FP32, as the models were trained; its cosine is exact.
      const double angle = static_cast<float>(position) * frequency;
      *cosine++ = static_cast<float>(std::cos(angle)) * scale;
      *sine++ = static_cast<float>(std::sin(angle)) * scale;
    }
  }
}

}  // namespace megatrain

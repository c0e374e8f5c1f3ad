// Samples the next token from a model's logits.
#ifndef MEGATRAIN_ENGINE_GENERATION_SAMPLER_H_
#define MEGATRAIN_ENGINE_GENERATION_SAMPLER_H_

#include <cstdint>
#include <random>

#include "absl/types/span.h"

namespace megatrain {

// The filters of transformers' generate, in its order: temperature, top_k, top_p.
struct SamplingOptions {
  double temperature = 0.8;  // 0 or less takes the likeliest token
  // Only the top_k likeliest tokens, and those as likely as the last of them, may be chosen. 0 =
  // all.
  int64_t top_k = 0;
  // Only the likeliest tokens may be chosen, the fewest whose probabilities together reach top_p
  // (Holtzman et al. 2020). Of equally likely ones the lower ids count as likelier. 1 = all.
  double top_p = 1;
};

// Returns the chosen token, as its index in `logits` [vocabulary]. If the temperature is 0 or less
// it is the lowest of the likeliest tokens. Otherwise it is drawn with one number of `random`.
// REQUIRES: `logits` is not empty, no logit is NaN or +infinity, top_k >= 0, 0 < top_p <= 1.
int32_t SampleToken(absl::Span<const float> logits, const SamplingOptions& options,
                    std::mt19937_64& random);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_GENERATION_SAMPLER_H_

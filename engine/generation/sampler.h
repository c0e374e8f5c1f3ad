// Chooses the next token from a model's logits.
#ifndef MEGATRAIN_ENGINE_GENERATION_SAMPLER_H_
#define MEGATRAIN_ENGINE_GENERATION_SAMPLER_H_

#include <cstdint>
#include <random>

#include "absl/types/span.h"

namespace megatrain {

// The filters of transformers' generate, in its order: temperature, top_k, top_p.
struct SamplingOptions {
  double temperature = 0.8;  // 0 takes the likeliest token
  // Only the top_k likeliest tokens may be chosen, and those as likely as the last of them. 0 =
  // all.
  int64_t top_k = 0;
  // Only the likeliest tokens whose probabilities together reach top_p may be chosen (Holtzman et
  // al. 2020). 1 = all.
  double top_p = 1;
};

// Returns the token: the lowest of equally likely ones if the temperature is 0, otherwise one drawn
// with one number of `random`. REQUIRES: `logits` is not empty.
int32_t SampleToken(absl::Span<const float> logits, const SamplingOptions& options,
                    std::mt19937_64& random);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_GENERATION_SAMPLER_H_

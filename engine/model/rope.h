// Computes the cosine and sine tables of rotary embeddings.
#ifndef MEGATRAIN_ENGINE_MODEL_ROPE_H_
#define MEGATRAIN_ENGINE_MODEL_ROPE_H_

#include <cstdint>
#include <vector>

#include "engine/model/model_description.h"

namespace megatrain {

// Returns the rotary_dim / 2 inverse frequencies, computed in FP32 step by step as in transformers'
// modeling_rope_utils. The power is rounded once, so an entry may differ from transformers' by a
// few units in the last place. `sequence_length` is the length of the sequences to come
// (RopeConfig::short_factors), on which longrope alone depends.
std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int64_t sequence_length);

// Returns the factor of cosine and sine: 1 except for yarn and longrope. For these it is
// attention_factor if that is above 0; else 1 if factor <= 1; else 0.1 ln(factor) + 1 for yarn and
// sqrt(1 + ln(factor) / ln(original_positions)) for longrope.
float RopeAttentionFactor(const RopeConfig& rope);

// Fills `cosine` and `sine` in host memory, each [end - begin, rotary_dim / 2], for positions
// [begin, end). Both are multiplied by RopeAttentionFactor and by the factor of
// RopeConfig::position_scale. `sequence_length` is as above. REQUIRES: with a position_scale,
// original_positions > 0.
void RopeTables(const RopeConfig& rope, int64_t sequence_length, int64_t begin, int64_t end,
                float* cosine, float* sine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_ROPE_H_

// Cosine and sine tables of rotary embeddings.
#ifndef MEGATRAIN_ENGINE_MODEL_ROPE_H_
#define MEGATRAIN_ENGINE_MODEL_ROPE_H_

#include <cstdint>
#include <vector>

#include "engine/model/model_config.h"

namespace megatrain {

// The head_dim / 2 inverse frequencies, computed in FP32 step by step as transformers'
// modeling_rope_utils does it; the power is rounded once, so an entry may differ by one unit in the
// last place.
std::vector<float> RopeInverseFrequencies(const ModelConfig& config);

// What cosine and sine are multiplied by: 1 except for yarn.
float RopeAttentionFactor(const RopeConfig& rope);

// Fills cosine and sine, [end - begin, head_dim / 2] each, for positions [begin, end).
void RopeTables(const ModelConfig& config, int64_t begin, int64_t end, float* cosine, float* sine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_ROPE_H_

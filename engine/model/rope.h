// Computes the cosine and sine tables of rotary embeddings.
#ifndef MEGATRAIN_ENGINE_MODEL_ROPE_H_
#define MEGATRAIN_ENGINE_MODEL_ROPE_H_

#include <cstdint>
#include <vector>

#include "engine/model/model_config.h"

namespace megatrain {

// Returns the head_dim / 2 inverse frequencies, computed in FP32 step by step as in transformers'
// modeling_rope_utils. The power is rounded once, so an entry may differ from transformers' by one
// unit in the last place.
std::vector<float> RopeInverseFrequencies(const ModelConfig& config);

// Returns the factor of cosine and sine: 1 except for yarn.
float RopeAttentionFactor(const RopeConfig& rope);

// Fills `cosine` and `sine`, each [end - begin, head_dim / 2], for positions [begin, end).
void RopeTables(const ModelConfig& config, int64_t begin, int64_t end, float* cosine, float* sine);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_ROPE_H_

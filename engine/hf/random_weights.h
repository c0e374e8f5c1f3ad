// Computes random weights of tensors and tiles from the model's description, the seed, the tensor's
// name and the element number alone.
#ifndef MEGATRAIN_ENGINE_HF_RANDOM_WEIGHTS_H_
#define MEGATRAIN_ENGINE_HF_RANDOM_WEIGHTS_H_

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/model/model_description.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

// Returns the value at which the standard normal distribution function is p, to seven digits
// (Wichura's algorithm AS 241, 1988). REQUIRES: 0 < p < 1.
float InverseNormal(double p);

// Sets out[0, elements) to elements [begin, begin + elements) of the whole tensor, as
// tensor.initial (model_layout.h) says. `tensor` may be a part of that tensor. The row
// config.padding_id of embedding tables is 0. If `pool` is null, it runs on the calling thread.
// REQUIRES: the elements are among those of the whole tensor.
void FillRandomWeights(const ModelDescription& config, uint64_t seed, const TensorSpec& tensor,
                       int64_t begin, int64_t elements, float* out, ThreadPool* pool);

// Fills the masters that `tile` holds as FillRandomWeights does, and sets moments and padding to
// zero. The remainder and the moments may be null; without a remainder BF16 weights are rounded.
// The distribution is that of transformers, but the values are not. They do not depend on the cut
// into tiles or on what the tile holds. It runs on the calling thread.
void InitializeTile(const ModelDescription& config, uint64_t seed, const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_RANDOM_WEIGHTS_H_

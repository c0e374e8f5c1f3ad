// The work of one call of each layer template, in the units that devices have rates for: what
// decoder_layer.cc and language_head.cc call, counted. A change there is a change here.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_WORK_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_WORK_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/activations.h"
#include "engine/model/model_config.h"

namespace megatrain {

struct LayerWork {
  double product_flops = 0;  // of matrix products, a multiply-add counted as 2
  // Of causal attention, the masked half not counted.
  double attention_forward_flops = 0;
  double attention_backward_flops = 0;
  // Device memory read and written, in bytes, by everything else. The operands and the result of a
  // product, in the precision of the operands, are part of the rate of products and not counted
  // here, nor are attention's; what a product adds to, and the difference to a wider result, are.
  double device_bytes = 0;
  double launches = 0;  // kernels

  LayerWork& operator+=(const LayerWork& other);
};
LayerWork operator+(LayerWork a, const LayerWork& b);
LayerWork operator*(double times, LayerWork work);

// A micro-batch of `tokens` tokens in documents as long as the sequence: what every function here
// is asked about.
struct WorkShape {
  ModelConfig config;
  DType dtype = DType::kF32;
  int64_t tokens = 0;
  int64_t sequence_length = 0;
  int64_t layer_chunk_tokens = 0;
  int64_t head_chunk_tokens = 0;
};

LayerWork EmbeddingForwardWork(const WorkShape& shape);
// Gradients count as sums that are added to. `first`: those that write a sum instead.
LayerWork EmbeddingBackwardWork(const WorkShape& shape, bool first);
LayerWork DecoderLayerForwardWork(const WorkShape& shape);
// What backward computes once more of what `level` did not keep.
LayerWork DecoderLayerRecomputeWork(const WorkShape& shape, KeepLevel level);
// Without recomputation.
LayerWork DecoderLayerBackwardWork(const WorkShape& shape, bool first);
LayerWork HeadForwardBackwardWork(const WorkShape& shape, bool first);
LayerWork HeadLossWork(const WorkShape& shape);
// A tile's gradient of `elements` when its last micro-batch is in: its sum of squares, and its
// rounding to `element_bytes` if that is less than FP32's.
LayerWork FinishGradientWork(int64_t elements, int64_t element_bytes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_WORK_H_

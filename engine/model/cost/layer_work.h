// Counts the work of one call of each layer template, in the units for which devices have rates
// (engine/host/hardware_rates.h), for predictions of times. The counts follow the kernel calls of
// engine/model/layer and of language_head.cc and must change with them.
#ifndef MEGATRAIN_ENGINE_MODEL_COST_LAYER_WORK_H_
#define MEGATRAIN_ENGINE_MODEL_COST_LAYER_WORK_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/layer/activations.h"
#include "engine/model/model_description.h"

namespace megatrain {

struct LayerWork {
  double product_flops = 0;  // matrix products; a multiply-add counts as 2
  // Causal attention, whose masked pairs are not counted, or the gated delta rule.
  double attention_forward_flops = 0;
  double attention_backward_flops = 0;
  // Bytes of device memory that other kernels read and write. Operands and results of products and
  // attention are left out, because the rates of these include them. The sums that a product adds
  // to are counted, and so are the extra bytes of a result that is wider than the operands.
  double device_bytes = 0;
  double launches = 0;  // kernel launches

  LayerWork& operator+=(const LayerWork& other);
};
LayerWork operator+(LayerWork a, const LayerWork& b);
LayerWork operator*(double times, LayerWork work);

// A micro-batch of `tokens` tokens in documents of sequence_length tokens, on the layer `layer` for
// the functions of decoder layers. REQUIRES: sequences and chunks have tokens.
struct WorkShape {
  const ModelDescription* model = nullptr;  // used during the calls only
  int layer = 0;
  DType dtype = DType::kF32;
  int64_t tokens = 0;
  int64_t sequence_length = 0;
  int64_t layer_chunk_tokens = 0;
  int64_t head_chunk_tokens = 0;
};

// The functions below return the work of one micro-batch. Those of decoder layers count only the
// attention half of a layer with experts (expert_work.h has the rest).
LayerWork EmbeddingForwardWork(const WorkShape& shape);
// `first` means that gradients are written and not added to sums, as in the layer templates.
LayerWork EmbeddingBackwardWork(const WorkShape& shape, bool first);
LayerWork DecoderLayerForwardWork(const WorkShape& shape);
// Returns the work of recomputing what `level` did not keep.
LayerWork DecoderLayerRecomputeWork(const WorkShape& shape, KeepLevel level);
// Returns the work of the backward pass without recomputation.
LayerWork DecoderLayerBackwardWork(const WorkShape& shape, bool first);
// Return the work of those parts of the backward passes that compute the gradients of matrices and
// add them to sums: what frozen matrices save.
LayerWork DecoderLayerWeightGradientWork(const WorkShape& shape);
LayerWork HeadWeightGradientWork(const WorkShape& shape);
LayerWork HeadForwardBackwardWork(const WorkShape& shape, bool first);
LayerWork HeadLossWork(const WorkShape& shape);
// Returns the work on a tile's gradient of `elements` elements after its last micro-batch: the sum
// of squares, and the rounding to `element_bytes` bytes an element if that is less than FP32 has.
LayerWork FinishGradientWork(int64_t elements, int64_t element_bytes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_COST_LAYER_WORK_H_

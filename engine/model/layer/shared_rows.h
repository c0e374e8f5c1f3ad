// SharedRows points to the tensors of one micro-batch that layers pass to later layers besides the
// residual stream. They lie on the device from the forward pass to the backward pass, because they
// are used throughout both.
//
// Layers with a PerLayerInputDescription read the embeddings of the tokens, and the weight of the
// one norm that they share. The gradients of the embeddings from all these layers are summed in
// FP32. The sum is added to the gradient of the first layer's input.
//
// A set of keys and values (AttentionDescription::key_set) is made by one layer and read by later
// layers. The gradients from these layers are summed in FP32, in the order of the backward pass,
// and then go into the backward pass of the layer that made the set.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_SHARED_ROWS_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_SHARED_ROWS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "engine/base/dtype.h"
#include "engine/model/model_description.h"

namespace megatrain {

// Pointers to device memory. T is the activation dtype, t the tokens of the micro-batch.
struct SharedRows {
  struct KeySet {
    void* rows = nullptr;       // T [t, 2, kv_width]: keys as attention takes them, and values
    float* gradient = nullptr;  // [t, 2, kv_width]; null without a backward pass
  };
  absl::InlinedVector<KeySet, 2> key_sets;  // by AttentionDescription::key_set
  // These are null if no layer has a PerLayerInputDescription.
  void* embedding = nullptr;            // T [t, hidden]
  float* embedding_gradient = nullptr;  // [t, hidden]; null without a backward pass
  void* per_layer_norm = nullptr;       // T [PerLayerInputDescription::width]
  // [PerLayerInputDescription::width]; null if the gradient is not wanted. The caller provides this
  // memory, and PlaceSharedRows does not, because it must last until the backward pass of the
  // embedding, which may follow other micro-batches.
  float* per_layer_norm_gradient = nullptr;
};

// Returns the bytes of the block for PlaceSharedRows; 0 if the layers share nothing. REQUIRES, here
// and below: the model has layers.
int64_t SharedRowsBytes(const ModelDescription& model, DType dtype, int64_t tokens, bool training);
// Returns pointers into `block`, which has SharedRowsBytes bytes and must outlive the result. The
// gradients are null unless `training`; per_layer_norm_gradient is always null.
SharedRows PlaceSharedRows(const ModelDescription& model, DType dtype, int64_t tokens,
                           bool training, void* block);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_SHARED_ROWS_H_

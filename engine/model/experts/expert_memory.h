// RoutedTokens and ExpertScratch are the device memory of the half of a layer with experts
// (expert_half.h). Each micro-batch holds RoutedTokens while one tile of experts after another is
// loaded. ExpertScratch is scratch memory. T is the activation dtype. RouteArgs and the other
// arguments of kernels are in engine/device/expert_args.h.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_description.h"

namespace megatrain {

// The tokens of one micro-batch on their way through the experts of a layer: t tokens, each of
// which goes to k of E experts. E and k are the largest of all layers. Device memory except for the
// last, `offsets`.
struct RoutedTokens {
  void* normed = nullptr;  // T [t, hidden], the experts' input
  float* rstd = nullptr;   // [t], of the norm that gives `normed`
  // [t, hidden]: in the forward pass the sum of the results of a token's experts and of the shared
  // unit, in the backward pass the sum of the gradients with respect to `normed`.
  float* sum = nullptr;
  int32_t* choice = nullptr;  // [t, k], as in RouteArgs
  float* weights = nullptr;   // [t, k], as in RouteArgs
  float* dweights = nullptr;  // [t, k], as in RouteBackwardArgs
  // T [t, hidden], the gradient with respect to the forward `sum`; null if no layer of the model
  // joins (LayerDescription::joins).
  void* dsum = nullptr;
  float* entropy = nullptr;  // [t], as in RouteArgs; 0 for padding
  // Sums over the tokens without padding, in FP64.
  double* entropy_sum = nullptr;      // [1], of the entropy
  double* probability = nullptr;      // [E], of softmax(logits)
  float* dprobabilities = nullptr;    // [E], as in RouteBackwardArgs; the caller fills it
  int32_t* assignments = nullptr;     // [t k], as in SortAssignmentsArgs
  int32_t* token_rows = nullptr;      // [t, k], as in SortAssignmentsArgs
  int32_t* device_offsets = nullptr;  // [E + 1], as in SortAssignmentsArgs
  // The gate of the shared unit, treated as a router with one expert; null if no layer has one.
  struct {
    int32_t* choice = nullptr;       // [t]
    float* weights = nullptr;        // [t]
    float* dweights = nullptr;       // [t]
    int32_t* assignments = nullptr;  // [t]
    int32_t* token_rows = nullptr;   // [t]
    int32_t* offsets = nullptr;      // [2]
  } shared;
  // Host memory: a copy of device_offsets that the caller makes, and sets, between RouteTokens and
  // the experts.
  const int32_t* offsets = nullptr;
};
// Returns the bytes of a block that suffices for any layer of the model; 0 without experts.
int64_t RoutedBytes(const ModelDescription& model, DType dtype, int64_t tokens);
// Returns pointers into `block`, which has RoutedBytes bytes, is aligned to
// TensorCursor::kAlignment and must outlive the result. Leaves `offsets` null. Without experts all
// pointers are null, and `block` may be null.
RoutedTokens PlaceRouted(const ModelDescription& model, DType dtype, int64_t tokens, void* block);

// Memory that the functions of expert_half.h, shared_expert.h and expert_join.h use in turn. n is
// the number of tokens of a chunk (LayerChunkTokens, activations.h), and the most rows that experts
// take at a time. E is the largest of all layers. `intermediate` is the largest of the experts',
// the shared unit's and the dense unit's. The tensors from gate_up to out have room for
// kWholeRowsMax more rows, by which LayerContext::whole_rows (layer_context.h) may enlarge a
// product.
struct ExpertScratch {
  float* logits = nullptr;  // [n, E]
  void* dlogits = nullptr;  // T [n, E]
  // The shared unit, the experts, and the dense unit beside them use these five in turn.
  void* gate_up = nullptr;     // T [n, 2, intermediate]
  void* activated = nullptr;   // T [n, intermediate]
  void* dactivated = nullptr;  // T [n, intermediate]
  void* in = nullptr;          // T [n, hidden], the rows of experts
  void* out = nullptr;         // T [n, hidden]
  // Null if no layer has RouterDescription::expert_scales.
  float* dexpert_scales = nullptr;  // [n, E], as in RouteBackwardArgs
  // [4, n], of the norms; null if no layer has a RouterDescription::input_scale or joins.
  float* rstd = nullptr;
  // Used by expert_join.cc; null if no layer joins.
  void* rounded = nullptr;  // T [n, hidden]
  void* joined = nullptr;   // T [n, hidden]
  void* djoined = nullptr;  // T [n, hidden]
};
// Returns the bytes of a block that suffices for any layer of the model; 0 without experts.
int64_t ExpertScratchBytes(const ModelDescription& model, DType dtype, int64_t chunk_tokens);
// Returns pointers into `block`, which has ExpertScratchBytes bytes, is aligned to
// TensorCursor::kAlignment and must outlive the result. Without experts all pointers are null, and
// `block` may be null.
ExpertScratch PlaceExpertScratch(const ModelDescription& model, DType dtype, int64_t chunk_tokens,
                                 void* block);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_

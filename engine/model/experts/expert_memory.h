// The device memory of the half of a layer with experts (expert_half.h): what micro-batches hold
// while the experts' tiles take turns, and what the functions work in.
#ifndef MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_
#define MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_description.h"

namespace megatrain {

// The tokens of one micro-batch on their way through the experts of a layer. t tokens, k experts
// chosen for each, E experts. Device memory except for `offsets`.
struct RoutedTokens {
  void* normed = nullptr;  // T [t, hidden], the experts' input
  float* rstd = nullptr;   // [t]
  // [t, hidden]: in forward the sum of what a token's experts return, in backward that of the
  // gradients by `normed`.
  float* sum = nullptr;
  int32_t* choice = nullptr;  // [t, k], as in RouteArgs
  float* weights = nullptr;   // [t, k], as in RouteArgs
  float* dweights = nullptr;  // [t, k], as in RouteBackwardArgs
  // T [t, hidden], the gradient by the sum; with a JoinDescription only.
  void* dsum = nullptr;
  float* entropy = nullptr;  // [t], as in RouteArgs
  // The sums over tokens of the entropy, and by expert of softmax(logits). FP64.
  double* entropy_sum = nullptr;
  double* probability = nullptr;      // [E]
  float* dprobabilities = nullptr;    // [E], as in RouteBackwardArgs; the caller's
  int32_t* assignments = nullptr;     // [t k], as in SortAssignmentsArgs
  int32_t* token_rows = nullptr;      // [t, k], as in SortAssignmentsArgs
  int32_t* device_offsets = nullptr;  // [E + 1], as in SortAssignmentsArgs
  // The gate of the shared unit as a router with one expert; only if there is such a gate.
  struct {
    int32_t* choice = nullptr;       // [t]
    float* weights = nullptr;        // [t]
    float* dweights = nullptr;       // [t]
    int32_t* assignments = nullptr;  // [t]
    int32_t* token_rows = nullptr;   // [t]
    int32_t* offsets = nullptr;      // [2]
  } shared;
  // HOST memory: a copy of device_offsets that the caller makes between RouteTokens and the
  // experts.
  const int32_t* offsets = nullptr;
};
// Returns the bytes of a block that suffices for any layer of the model; 0 without experts.
int64_t RoutedBytes(const ModelDescription& model, DType dtype, int64_t tokens);
RoutedTokens PlaceRouted(const ModelDescription& model, DType dtype, int64_t tokens, void* block);

// Memory that the functions of expert_half.h, shared_expert.h and expert_join.h use in turn. T is
// the activation dtype, n the tokens of a chunk (LayerChunkTokens) and the most rows that experts
// take at a time, besides the rows that fill up a product (LayerContext::whole_rows).
struct ExpertScratch {
  float* logits = nullptr;  // [n, E]
  void* dlogits = nullptr;  // T [n, E]
  // Those of the shared unit, of the experts, or of the dense unit beside them.
  void* gate_up = nullptr;     // T [n, 2, intermediate]
  void* activated = nullptr;   // T [n, intermediate]
  void* dactivated = nullptr;  // T [n, intermediate]
  void* in = nullptr;          // T [n, hidden], the rows of experts
  void* out = nullptr;         // T [n, hidden]
  // With RouterDescription::expert_scales only.
  float* dexpert_scales = nullptr;  // [n, E], as in RouteBackwardArgs
  // With RouterDescription::input_scale or a JoinDescription only, of the norms: [4, n].
  float* rstd = nullptr;
  // With a JoinDescription only (expert_join.cc).
  void* rounded = nullptr;  // T [n, hidden]
  void* joined = nullptr;   // T [n, hidden]
  void* djoined = nullptr;  // T [n, hidden]
};
// Returns the bytes of a block that suffices for any layer of the model; 0 without experts.
int64_t ExpertScratchBytes(const ModelDescription& model, DType dtype, int64_t chunk_tokens);
ExpertScratch PlaceExpertScratch(const ModelDescription& model, DType dtype, int64_t chunk_tokens,
                                 void* block);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_EXPERTS_EXPERT_MEMORY_H_

#include "engine/model/experts/expert_memory.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "engine/model/layer/activations.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {
namespace {

// The largest value of `size` over the layers with experts.
int64_t Largest(const ModelDescription& model,
                absl::FunctionRef<int64_t(const LayerDescription&)> size) {
  int64_t largest = 0;
  for (const LayerDescription& layer : model.layers) {
    if (layer.experts.count > 0) largest = std::max(largest, size(layer));
  }
  return largest;
}

int64_t ChosenMax(const ModelDescription& model) {
  return Largest(model, [](const LayerDescription& d) { return d.experts.chosen; });
}
bool AnyJoins(const ModelDescription& model) {
  return Largest(model, [](const LayerDescription& d) { return d.joins() ? 1 : 0; }) > 0;
}
bool AnyScalesExperts(const ModelDescription& model) {
  return Largest(model, [](const LayerDescription& d) {
           return d.experts.router.expert_scales.empty() ? 0 : 1;
         }) > 0;
}
bool AnyScalesInput(const ModelDescription& model) {
  return Largest(model, [](const LayerDescription& d) {
           return d.experts.router.input_scale.empty() ? 0 : 1;
         }) > 0;
}

void Place(const ModelDescription& model, DType dtype, int64_t t, TensorCursor& cursor,
           RoutedTokens& r) {
  const int64_t k = ChosenMax(model), experts = MostExperts(model);
  if (experts == 0) return;
  cursor.Take(&r.normed, t * model.hidden * DTypeBytes(dtype));
  cursor.Take(&r.rstd, t * 4);
  cursor.Take(&r.sum, t * model.hidden * 4);
  cursor.Take(&r.choice, t * k * 4);
  cursor.Take(&r.weights, t * k * 4);
  cursor.Take(&r.dweights, t * k * 4);
  cursor.Take(&r.entropy, t * 4);
  cursor.Take(&r.assignments, t * k * 4);
  cursor.Take(&r.token_rows, t * k * 4);
  cursor.Take(&r.device_offsets, (experts + 1) * 4);
  cursor.Take(&r.entropy_sum, 8);
  cursor.Take(&r.probability, experts * 8);
  cursor.Take(&r.dprobabilities, experts * 4);
  if (AnyJoins(model)) cursor.Take(&r.dsum, t * model.hidden * DTypeBytes(dtype));
  if (Largest(model, [](const LayerDescription& d) {
        return int64_t{d.experts.shared_gate ? 1 : 0};
      }) == 0) {
    return;
  }
  cursor.Take(&r.shared.choice, t * 4);
  cursor.Take(&r.shared.weights, t * 4);
  cursor.Take(&r.shared.dweights, t * 4);
  cursor.Take(&r.shared.assignments, t * 4);
  cursor.Take(&r.shared.token_rows, t * 4);
  cursor.Take(&r.shared.offsets, 2 * 4);
}

void Place(const ModelDescription& model, DType dtype, int64_t n, TensorCursor& cursor,
           ExpertScratch& s) {
  const int64_t experts = MostExperts(model);
  if (experts == 0) return;
  const int64_t e = DTypeBytes(dtype);
  const int64_t intermediate = Largest(model, [](const LayerDescription& d) {
    return std::max(
        {d.experts.intermediate, d.experts.shared_intermediate, d.feed_forward.intermediate});
  });
  cursor.Take(&s.logits, n * experts * 4);
  cursor.Take(&s.dlogits, n * experts * e);
  const int64_t rows = n + kWholeRowsMax;
  cursor.Take(&s.gate_up, rows * 2 * intermediate * e);
  cursor.Take(&s.activated, rows * intermediate * e);
  cursor.Take(&s.dactivated, rows * intermediate * e);
  cursor.Take(&s.in, rows * model.hidden * e);
  cursor.Take(&s.out, rows * model.hidden * e);
  const bool joins = AnyJoins(model);
  if (AnyScalesExperts(model)) cursor.Take(&s.dexpert_scales, n * experts * 4);
  if (joins || AnyScalesInput(model)) cursor.Take(&s.rstd, 4 * n * 4);
  if (!joins) return;
  for (void** tensor : {&s.rounded, &s.joined, &s.djoined}) {
    cursor.Take(tensor, n * model.hidden * e);
  }
}

}  // namespace

int64_t RoutedBytes(const ModelDescription& model, DType dtype, int64_t tokens) {
  TensorCursor cursor;
  RoutedTokens none;
  Place(model, dtype, tokens, cursor, none);
  return cursor.offset;
}

RoutedTokens PlaceRouted(const ModelDescription& model, DType dtype, int64_t tokens, void* block) {
  TensorCursor cursor{static_cast<char*>(block)};
  RoutedTokens r;
  Place(model, dtype, tokens, cursor, r);
  return r;
}

int64_t ExpertScratchBytes(const ModelDescription& model, DType dtype, int64_t chunk_tokens) {
  TensorCursor cursor;
  ExpertScratch none;
  Place(model, dtype, chunk_tokens, cursor, none);
  return cursor.offset;
}

ExpertScratch PlaceExpertScratch(const ModelDescription& model, DType dtype, int64_t chunk_tokens,
                                 void* block) {
  TensorCursor cursor{static_cast<char*>(block)};
  ExpertScratch s;
  Place(model, dtype, chunk_tokens, cursor, s);
  return s;
}

}  // namespace megatrain

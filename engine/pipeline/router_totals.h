// RouterTotals sums how the tokens of one step were spread over experts, for the step's record and
// for the auxiliary loss that spreads them evenly.
//
// The auxiliary loss (Fedus et al. 2021, as in transformers) of a micro-batch of N tokens without
// padding, pooled over all L layers with experts, E each, is
//   aux = E * sum over experts e of f_e P_e,
// where f_e is the number of choices of e, divided by N L, and P_e is the mean of softmax(logits)_e
// over tokens and layers. f is a constant for the gradient. A step's loss is the mean over its
// micro-batches, weighted by their tokens. transformers' Trainer adds those of several
// micro-batches instead. Padding counts nowhere.
#ifndef MEGATRAIN_ENGINE_PIPELINE_ROUTER_TOTALS_H_
#define MEGATRAIN_ENGINE_PIPELINE_ROUTER_TOTALS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/model_layout.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// The totals of a step. Not thread-safe.
class RouterTotals {
 public:
  // A default-constructed object may only be assigned to, or stand for a model without experts.
  RouterTotals() = default;
  // Begins a step with `step_tokens` tokens on all ranks together. This rank has micro-batches with
  // `micro_batch_tokens` tokens. Neither counts padding. `layout` is used during the call.
  RouterTotals(const ModelLayout& layout, const std::vector<int64_t>& micro_batch_tokens,
               int64_t step_tokens);

  // Adds the routing of a micro-batch in a stage with experts. The stages of one micro-batch must
  // come in their order, so that sums have the same bits. `offsets` [experts + 1] are those of
  // SortAssignmentsArgs; more may follow them. Of the choices that they count, `padding` has those
  // of padding. `entropy` and `probability` [experts] are sums over the other tokens, of the
  // router's entropy in nats and of the softmax. `probability` is empty without the auxiliary loss.
  void Add(int stage, int micro_batch, absl::Span<const int32_t> offsets,
           absl::Span<const int32_t> padding, double entropy, absl::Span<const double> probability);

  // Returns the gradient of coefficient * the step's auxiliary loss by the softmax of a token,
  // [experts]. It is the same for every token of the micro-batch in every layer, but 0 for padding.
  // REQUIRES: all stages were added for this micro-batch.
  std::vector<float> AuxiliaryGradient(int micro_batch, double coefficient) const;

  // Appends the micro-batches of the next rank, and adds their routing. It must have the same model
  // and step.
  void Append(const RouterTotals& next);
  // Forgets all micro-batches, and the routing of their tokens.
  void ClearMicroBatches();
  // ToNumbers returns the content as numbers, to be sent to another process. AppendNumbers appends
  // what ToNumbers of the next process returned for this model and step.
  std::vector<double> ToNumbers() const;
  void AppendNumbers(absl::Span<const double> next);

  // Returns the step's report. REQUIRES: the model has experts; all stages and micro-batches of the
  // step were added.
  RouterReport Report() const;

 private:
  struct MicroBatch {
    double tokens = 0;
    double entropy = 0;               // over all layers
    std::vector<double> chosen;       // by expert, over all layers
    std::vector<double> probability;  // the same; empty without the auxiliary loss
  };
  double part(const MicroBatch& m) const { return m.tokens / tokens_; }

  double layers_ = 0, tokens_ = 0;
  std::vector<MicroBatch> micro_batches_;
  std::vector<std::vector<double>> chosen_;  // by stage and expert; empty without experts
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_ROUTER_TOTALS_H_

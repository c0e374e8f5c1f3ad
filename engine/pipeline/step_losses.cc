// The part of StepRunner that compares pairs of answers, and takes the losses of a step.
#include <algorithm>
#include <iterator>

#include "engine/model/head/language_head.h"
#include "engine/pipeline/step_runner.h"

namespace megatrain {

void StepRunner::PreparePairs(int slot, const Batch& batch) {
  const PipelineDimensions& d = *p_.dimensions;
  const BatchArrays arrays = BatchArrays::At(p_.host_buffers->batch[slot].data(), d);
  // A generation's batch has no pairs.
  states_[slot].pairs.assign(batch.micro_batch_tokens.size(), 0);
  for (size_t m = 0; m < batch.pair_bounds.size(); ++m) {
    const std::vector<int32_t>& bounds = batch.pair_bounds[m];
    const int64_t base = static_cast<int64_t>(m) * d.pairs_max();
    const int64_t pairs = std::ssize(bounds) / 4;
    states_[slot].pairs[m] = pairs;
    std::copy(bounds.begin(), bounds.end(), arrays.pair_bounds + 4 * base);
    double* const logps = arrays.reference_logps + 2 * base;
    std::copy_n(batch.reference_logps[m].begin(), 2 * pairs, logps);
  }
}

absl::Status StepRunner::ComparePairs(const Op& op, int micro_batch, int weight_buffer,
                                      int input_slot, bool weighted, Stream& stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  auto* const results = reinterpret_cast<PreferenceResult*>(b.loss_results[op.step_slot]) +
                        micro_batch * p_.dimensions->pairs_max();
  return HeadPreference(Context(&stream), b.weights[weight_buffer], View(op.step_slot, micro_batch),
                        b.hidden[input_slot], p_.preference,
                        1.0 / static_cast<double>(states_[op.step_slot].loss_terms), b.head,
                        b.losses, results, weighted ? b.loss_weights : nullptr);
}

absl::Span<const PreferenceResult> StepRunner::ResultsOf(int slot, int micro_batch) const {
  const auto* const results =
      reinterpret_cast<const PreferenceResult*>(p_.host_buffers->loss_results[slot]) +
      micro_batch * p_.dimensions->pairs_max();
  return {results, static_cast<size_t>(states_[slot].pairs[micro_batch])};
}

std::vector<double> StepRunner::AnswerLogps(int slot) const {
  std::vector<double> logps;
  for (size_t m = 0; m < states_[slot].pairs.size(); ++m) {
    for (const PreferenceResult& pair : ResultsOf(slot, static_cast<int>(m))) {
      logps.insert(logps.end(), {pair.chosen_logp, pair.rejected_logp});
    }
  }
  return logps;
}

void StepRunner::CollectLoss(int slot) {
  StepState& state = states_[slot];
  state.loss_sum = 0;
  state.rewards = {};
  const PipelineDimensions& d = *p_.dimensions;
  const char* const results = p_.host_buffers->loss_results[slot];
  for (size_t m = 0; m < state.micro_batch_tokens.size() && !d.shape.pairs; ++m) {
    state.loss_sum += reinterpret_cast<const double*>(results)[m];
  }
  const double* reference = BatchArrays::At(p_.host_buffers->batch[slot].data(), d).reference_logps;
  for (size_t m = 0; m < state.pairs.size(); ++m, reference += 2 * d.pairs_max()) {
    const double* logp = reference;
    for (const PreferenceResult& pair : ResultsOf(slot, static_cast<int>(m))) {
      const double chosen = p_.preference.beta * (pair.chosen_logp - logp[0]);
      const double rejected = p_.preference.beta * (pair.rejected_logp - logp[1]);
      logp += 2;
      state.loss_sum += pair.loss;
      state.rewards.chosen += chosen;
      state.rewards.rejected += rejected;
      state.rewards.preferred += chosen > rejected ? 1 : 0;
      ++state.rewards.pairs;
    }
  }
}

}  // namespace megatrain

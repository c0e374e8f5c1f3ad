// The part of StepRunner that compares pairs of answers, and takes the losses of a step.
#include <algorithm>
#include <iterator>

#include "engine/base/status.h"
#include "engine/model/head/language_head.h"
#include "engine/pipeline/step_runner.h"

namespace megatrain {
namespace {

constexpr int kLossValues = 5;  // the numbers of a MicroBatchLoss

}  // namespace

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

MicroBatchLoss StepRunner::LossOf(int slot, int micro_batch) const {
  const PipelineDimensions& d = *p_.dimensions;
  MicroBatchLoss sums;
  if (!d.shape.pairs) {
    sums.loss = reinterpret_cast<const double*>(p_.host_buffers->loss_results[slot])[micro_batch];
    return sums;
  }
  const double* logp = BatchArrays::At(p_.host_buffers->batch[slot].data(), d).reference_logps +
                       2 * micro_batch * d.pairs_max();
  for (const PreferenceResult& pair : ResultsOf(slot, micro_batch)) {
    const double chosen = p_.preference.beta * (pair.chosen_logp - logp[0]);
    const double rejected = p_.preference.beta * (pair.rejected_logp - logp[1]);
    logp += 2;
    sums.loss += pair.loss;
    sums.rewards.chosen += chosen;
    sums.rewards.rejected += rejected;
    sums.rewards.preferred += chosen > rejected ? 1 : 0;
    ++sums.rewards.pairs;
  }
  return sums;
}

void StepRunner::AddLoss(const MicroBatchLoss& of, StepState& state) {
  state.loss_sum += of.loss;
  state.rewards.pairs += of.rewards.pairs;
  state.rewards.chosen += of.rewards.chosen;
  state.rewards.rejected += of.rewards.rejected;
  state.rewards.preferred += of.rewards.preferred;
}

void StepRunner::CollectLoss(int slot) {
  StepState& state = states_[slot];
  if (state.shared_losses) return;
  state.loss_sum = 0;
  state.rewards = {};
  for (int m = 0; m < std::ssize(state.micro_batch_tokens); ++m) AddLoss(LossOf(slot, m), state);
}

// Adds the micro-batches of all ranks in their order, as one rank does that has them all.
void StepRunner::AddSharedLosses(int slot, absl::Span<const double> values) {
  StepState& state = states_[slot];
  state.loss_sum = 0;
  state.rewards = {};
  for (size_t i = 0; i < values.size(); i += kLossValues) {
    AddLoss({values[i],
             {static_cast<int64_t>(values[i + 1]), values[i + 2], values[i + 3],
              static_cast<int64_t>(values[i + 4])}},
            state);
  }
  state.shared_losses = true;
}

absl::Status StepRunner::Do(const ShareResultsOp& share, const Op& op, Stream*) {
  const PipelineDimensions& d = *p_.dimensions;
  const int slot = op.step_slot;
  const double* const norms = p_.host_buffers->norms[slot];
  std::vector<double> values;  // micro-batches that a rank lacks count as 0
  for (size_t m = 0; share.losses && m < static_cast<size_t>(d.micro_batches); ++m) {
    MicroBatchLoss sums;
    if (m < states_[slot].micro_batch_tokens.size()) sums = LossOf(slot, static_cast<int>(m));
    values.insert(values.end(),
                  {sums.loss, static_cast<double>(sums.rewards.pairs), sums.rewards.chosen,
                   sums.rewards.rejected, static_cast<double>(sums.rewards.preferred)});
  }
  const size_t losses = values.size();
  for (int tile = 0; share.norms && tile < d.shape.tiles(); ++tile) {
    for (int block = 0; block < d.shape.folds; ++block) {
      values.push_back(d.shape.state_elements(tile) > 0 ? norms[tile * d.shape.folds + block] : 0);
    }
  }
  MT_ASSIGN_OR_RETURN(const std::vector<double> all, p_.value_communicator->GatherValues(values));
  if (share.losses) {
    std::vector<double> all_losses;
    for (size_t begin = 0; begin < all.size(); begin += values.size()) {
      const auto of_rank = all.begin() + static_cast<int64_t>(begin);
      all_losses.insert(all_losses.end(), of_rank, of_rank + static_cast<int64_t>(losses));
    }
    AddSharedLosses(slot, all_losses);
  }
  if (share.norms) AddSharedSquares(slot, all, values.size());
  return absl::OkStatus();
}

}  // namespace megatrain

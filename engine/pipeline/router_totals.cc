#include "engine/pipeline/router_totals.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace megatrain {

RouterTotals::RouterTotals(const ModelLayout& layout,
                           const std::vector<int64_t>& micro_batch_tokens, int64_t step_tokens)
    : tokens_(static_cast<double>(step_tokens)) {
  const size_t most = static_cast<size_t>(MostExperts(layout.model));
  if (most == 0) return;
  for (const Stage& stage : layout.stages) {
    const int64_t experts = layout.model.layers[static_cast<size_t>(stage.layer)].experts.count;
    const bool routes = stage.kind == StageKind::kExperts;
    chosen_.emplace_back(routes ? static_cast<size_t>(experts) : 0);
    layers_ += routes ? 1 : 0;
  }
  for (const int64_t tokens : micro_batch_tokens) {
    micro_batches_.push_back({static_cast<double>(tokens), 0.0, std::vector<double>(most), {}});
  }
}

void RouterTotals::Add(int stage, int micro_batch, absl::Span<const int32_t> offsets,
                       absl::Span<const int32_t> padding, double entropy,
                       absl::Span<const double> probability) {
  MicroBatch& m = micro_batches_[static_cast<size_t>(micro_batch)];
  std::vector<double>& of_stage = chosen_[static_cast<size_t>(stage)];
  for (size_t e = 0; e < of_stage.size(); ++e) {
    const double chosen = offsets[e + 1] - offsets[e];
    of_stage[e] += chosen;
    m.chosen[e] += chosen;
  }
  for (const int32_t e : padding) {
    --of_stage[static_cast<size_t>(e)];
    --m.chosen[static_cast<size_t>(e)];
  }
  if (!probability.empty()) m.probability.resize(m.chosen.size());
  for (size_t e = 0; e < probability.size(); ++e) m.probability[e] += probability[e];
  m.entropy += entropy;
}

std::vector<float> RouterTotals::AuxiliaryGradient(int micro_batch, double coefficient) const {
  const MicroBatch& m = micro_batches_[static_cast<size_t>(micro_batch)];
  const double pooled = m.tokens * layers_;
  std::vector<float> gradient(m.chosen.size());
  if (m.tokens == 0) return gradient;
  for (size_t e = 0; e < gradient.size(); ++e) {
    gradient[e] = static_cast<float>(coefficient * part(m) * static_cast<double>(gradient.size()) *
                                     m.chosen[e] / pooled / pooled);
  }
  return gradient;
}

void RouterTotals::Append(const RouterTotals& next) {
  micro_batches_.insert(micro_batches_.end(), next.micro_batches_.begin(),
                        next.micro_batches_.end());
  for (size_t stage = 0; stage < chosen_.size(); ++stage) {
    std::transform(chosen_[stage].begin(), chosen_[stage].end(), next.chosen_[stage].begin(),
                   chosen_[stage].begin(), std::plus<>());
  }
}

void RouterTotals::ClearMicroBatches() {
  micro_batches_.clear();
  for (std::vector<double>& stage : chosen_) std::fill(stage.begin(), stage.end(), 0.0);
}

std::vector<double> RouterTotals::ToNumbers() const {
  const bool has_probability =
      !micro_batches_.empty() && !micro_batches_.front().probability.empty();
  std::vector<double> numbers = {has_probability ? 1.0 : 0.0,
                                 static_cast<double>(micro_batches_.size())};
  const auto add = [&](const std::vector<double>& more) {
    numbers.insert(numbers.end(), more.begin(), more.end());
  };
  for (const MicroBatch& m : micro_batches_) {
    add({m.tokens, m.entropy, static_cast<double>(m.chosen.size())});
    add(m.chosen);
    add(m.probability);
  }
  for (const std::vector<double>& stage : chosen_) add(stage);
  return numbers;
}

void RouterTotals::AppendNumbers(absl::Span<const double> next) {
  const auto take = [&](size_t count) {
    const std::vector<double> taken(next.begin(), next.begin() + static_cast<int64_t>(count));
    next.remove_prefix(count);
    return taken;
  };
  RouterTotals other = *this;
  other.micro_batches_.clear();
  const std::vector<double> head = take(2);
  for (int64_t i = 0; i < static_cast<int64_t>(head[1]); ++i) {
    const std::vector<double> numbers = take(3);
    const size_t experts = static_cast<size_t>(numbers[2]);
    MicroBatch& m = other.micro_batches_.emplace_back();
    m.tokens = numbers[0];
    m.entropy = numbers[1];
    m.chosen = take(experts);
    m.probability = take(head[0] > 0 ? experts : 0);
  }
  for (std::vector<double>& stage : other.chosen_) stage = take(stage.size());
  Append(other);
}

RouterReport RouterTotals::Report() const {
  RouterReport report;
  for (const std::vector<double>& stage : chosen_) {
    if (stage.empty()) continue;
    const double sum = std::accumulate(stage.begin(), stage.end(), 0.0);
    report.busiest = std::max(report.busiest, *std::max_element(stage.begin(), stage.end()) *
                                                  static_cast<double>(stage.size()) / sum);
  }
  double all = 0, auxiliary = 0, entropy = 0;
  const bool has_probability = !micro_batches_.front().probability.empty();
  report.load.resize(micro_batches_.front().chosen.size());
  for (const MicroBatch& m : micro_batches_) {
    const double pooled = m.tokens * layers_;
    entropy += m.entropy;
    for (size_t e = 0; e < report.load.size(); ++e) {
      report.load[e] += m.chosen[e];
      all += m.chosen[e];
      if (!has_probability || m.tokens == 0) continue;
      auxiliary += part(m) * static_cast<double>(report.load.size()) * (m.chosen[e] / pooled) *
                   (m.probability[e] / pooled);
    }
  }
  for (double& part : report.load) part /= all;
  report.entropy = entropy / (tokens_ * layers_);
  if (has_probability) report.auxiliary_loss = auxiliary;
  return report;
}

}  // namespace megatrain

#include "engine/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace megatrain {
namespace {

// Sets the weights of tokens beyond the `count` largest to 0. Equals of the last one stay.
void KeepLargest(size_t count, std::vector<double>& weights) {
  if (count >= weights.size()) return;
  std::vector<double> sorted = weights;
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  const double least = *last;
  for (double& weight : weights) {
    if (weight < least) weight = 0;
  }
}

// Sets the weights beyond the largest ones that together are `part` of all to 0. Of equals the
// first ones stay.
void KeepNucleus(double part, std::vector<double>& weights) {
  double whole = 0;
  for (const double weight : weights) whole += weight;
  // A heap, because few tokens are needed of many.
  std::vector<size_t> heap;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) heap.push_back(i);
  }
  const auto later = [&](size_t a, size_t b) {
    return weights[a] != weights[b] ? weights[a] < weights[b] : a > b;
  };
  std::make_heap(heap.begin(), heap.end(), later);
  double kept = 0;
  while (!heap.empty() && kept < part * whole) {
    kept += weights[heap.front()];
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
  }
  for (const size_t i : heap) weights[i] = 0;
}

}  // namespace

int32_t SampleToken(absl::Span<const float> logits, const SamplingOptions& options,
                    std::mt19937_64& random) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(logits[i]) - *best) / options.temperature);
  }
  if (options.top_k > 0) KeepLargest(static_cast<size_t>(options.top_k), weights);
  if (options.top_p < 1) KeepNucleus(options.top_p, weights);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  double left = sum * static_cast<double>(random() >> 11) * 0x1p-53;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best - logits.begin());
}

}  // namespace megatrain

#include "engine/optim/adamw_tuner.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace megatrain {
namespace {

// A host's memory rate changes from one moment to the next; the fastest of three tries that lie
// apart is nearer to what a setting can do than their mean.
constexpr int kRounds = 3;
// Another value must be faster than the default by more than the noise of a good measurement.
constexpr double kGain = 0.01;

}  // namespace

AdamWTuner::AdamWTuner(int threads) : threads_(threads) { BeginStage(); }

void AdamWTuner::BeginStage() {
  // The default comes first.
  candidates_ = {chosen_};
  const auto also = [this](auto member, auto value) {
    AdamWTuning candidate = chosen_;
    candidate.*member = value;
    candidates_.push_back(candidate);
  };
  switch (stage_) {
    case kPrefetch:
      for (const int elements : {0, 256, 1024}) also(&AdamWTuning::prefetch_elements, elements);
      break;
    case kBlock:
      for (const int64_t elements : {int64_t{1} << 16, int64_t{1} << 19}) {
        also(&AdamWTuning::block_elements, elements);
      }
      break;
    case kThreads:
      if (threads_ >= 4) also(&AdamWTuning::threads, (threads_ + 1) / 2);
      break;
    default:
      break;
  }
  fastest_.assign(candidates_.size(), std::numeric_limits<double>::infinity());
  tries_ = 0;
}

AdamWTuning AdamWTuner::Next() const {
  return done() ? chosen_ : candidates_[static_cast<size_t>(tries_) % candidates_.size()];
}

void AdamWTuner::Report(double seconds_per_element) {
  double& fastest = fastest_[static_cast<size_t>(tries_) % candidates_.size()];
  fastest = std::min(fastest, seconds_per_element);
  if (++tries_ < kRounds * static_cast<int>(candidates_.size())) return;
  const auto best = std::min_element(fastest_.begin(), fastest_.end());
  if (*best < fastest_[0] * (1 - kGain)) {
    chosen_ = candidates_[static_cast<size_t>(best - fastest_.begin())];
  }
  ++stage_;
  if (stage_ == kThreads && threads_ < 4) ++stage_;
  if (!done()) BeginStage();
}

}  // namespace megatrain

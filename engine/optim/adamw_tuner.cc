#include "engine/optim/adamw_tuner.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace megatrain {
namespace {

constexpr size_t kRounds = 9;
// Another value must be faster than the default by more than the noise of a good measurement.
constexpr double kGain = 0.005;

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
  seconds_.clear();
}

size_t AdamWTuner::CandidateOf(size_t attempt) const {
  const size_t count = candidates_.size(), place = attempt % count;
  return attempt / count % 2 == 0 ? place : count - 1 - place;
}

AdamWTuning AdamWTuner::Next() const {
  return done() ? chosen_ : candidates_[CandidateOf(seconds_.size())];
}

void AdamWTuner::Report(double seconds_per_element) {
  seconds_.push_back(seconds_per_element);
  const size_t count = candidates_.size();
  if (seconds_.size() < kRounds * count) return;
  std::vector<std::vector<double>> ratios(count);
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<double> of_round(count);
    for (size_t i = round * count; i < (round + 1) * count; ++i) {
      of_round[CandidateOf(i)] = seconds_[i];
    }
    for (size_t c = 0; c < count; ++c) ratios[c].push_back(of_round[c] / of_round[0]);
  }
  double least = 1 - kGain;
  for (size_t c = 1; c < count; ++c) {
    const auto median = ratios[c].begin() + kRounds / 2;
    std::nth_element(ratios[c].begin(), median, ratios[c].end());
    if (*median >= least) continue;
    least = *median;
    chosen_ = candidates_[c];
  }
  ++stage_;
  if (stage_ == kThreads && threads_ < 4) ++stage_;
  if (!done()) BeginStage();
}

}  // namespace megatrain

// Chooses how updates are carried out on this host: how far ahead they prefetch, in what blocks, by
// how many threads. Hosts differ (some are fastest without software prefetch), and the choice never
// changes a bit, so it may follow the clock.
//
// A tuner tries the values by turns, round after round, on updates that are made anyway. It chooses
// the distance first, then the block, then the threads. A host's memory rate changes from one
// moment to the next, so a value is compared with the default within each round, and the median of
// these ratios decides.
#ifndef MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_
#define MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_

#include <cstddef>
#include <vector>

#include "engine/optim/adamw.h"

namespace megatrain {

class AdamWTuner {
 public:
  // `threads`: of the pool. Half of them are tried too, from four on: two threads of one core have
  // no more memory bandwidth than one.
  explicit AdamWTuner(int threads);

  bool done() const { return stage_ == kStages; }
  // What the next update uses: the value under trial, or the choice once done.
  AdamWTuning Next() const;
  // Tells how long the update that used Next() took. REQUIRES: !done().
  void Report(double seconds_per_element);

 private:
  enum Stage { kPrefetch, kBlock, kThreads, kStages };

  void BeginStage();
  // The candidate of a try of this stage: rounds go up and down the list by turns, so that none
  // always follows the same neighbour.
  size_t CandidateOf(size_t attempt) const;

  const int threads_;
  AdamWTuning chosen_;
  int stage_ = kPrefetch;
  std::vector<AdamWTuning> candidates_;
  std::vector<double> seconds_;  // an element's, by try
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_

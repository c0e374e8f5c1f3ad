// Chooses how updates are carried out on this host: how far ahead they prefetch, in what blocks, by
// how many threads. Hosts differ (some are fastest without software prefetch), and the choice never
// changes a bit, so it may follow the clock.
//
// A tuner tries each value three times, by turns, on updates that are made anyway, and keeps the
// one whose fastest try was the fastest: first of the distance, then of the block, then of the
// threads.
#ifndef MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_
#define MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_

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

  const int threads_;
  AdamWTuning chosen_;
  int stage_ = kPrefetch;
  std::vector<AdamWTuning> candidates_;
  std::vector<double> fastest_;  // seconds an element, by candidate
  int tries_ = 0;                // in this stage
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_

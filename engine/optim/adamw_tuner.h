// Chooses by measuring how AdamW updates are carried out on this host: the prefetch distance, the
// block size and the number of threads. Hosts differ; some are fastest without software prefetch.
// The choice does not change a bit of the result, so it may depend on the clock.
//
// A tuner tries the values in turn, round after round, on updates that are made anyway. It chooses
// the distance first, then the block, then the threads. A host's memory rate changes from one
// moment to the next. Therefore each value is compared within a round with the one in use so far,
// and the median of these ratios decides. A gain of less than 0.5% does not count.
//
// Thread safety: one thread at a time.
#ifndef MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_
#define MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_

#include <cstddef>
#include <vector>

#include "engine/optim/adamw.h"

namespace megatrain {

class AdamWTuner {
 public:
  // `threads` is the size of the pool. From four on, half of them (rounded up) are tried too,
  // because two threads of one core have no more memory bandwidth than one.
  explicit AdamWTuner(int threads);

  bool done() const { return stage_ == kStages; }
  // Returns the tuning for the next update: the value under trial, or the choice once done().
  AdamWTuning Next() const;
  // Records how long the update that used Next() took. REQUIRES: !done(), and the time is above 0.
  void Report(double seconds_per_element);

 private:
  enum Stage { kPrefetch, kBlock, kThreads, kStages };

  void BeginStage();
  // Returns the candidate for a try of this stage. Rounds go alternately up and down the list, so
  // that no candidate always follows the same neighbor.
  size_t CandidateOf(size_t attempt) const;

  const int threads_;
  AdamWTuning chosen_;
  int stage_ = kPrefetch;
  std::vector<AdamWTuning> candidates_;
  std::vector<double> seconds_;  // for an element, by try
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_TUNER_H_

// Runs AdamW on a thread pool and tunes it to the host while it works.
//
// Thread safety: all methods may be called from several threads; calls take turns, so that tuned
// and tuning wait for an Update under way.
#ifndef MEGATRAIN_ENGINE_OPTIM_ADAMW_UPDATER_H_
#define MEGATRAIN_ENGINE_OPTIM_ADAMW_UPDATER_H_

#include <array>

#include "absl/types/span.h"
#include "engine/base/mutex.h"
#include "engine/base/thread_pool.h"
#include "engine/optim/adamw.h"
#include "engine/optim/adamw_tuner.h"

namespace megatrain {

class AdamWUpdater {
 public:
  // `pool` must outlive the updater.
  explicit AdamWUpdater(ThreadPool* pool);

  // Does and returns what AdamWUpdate does, and REQUIRES the same. The first updates of large
  // ranges try several tunings, with the same bits.
  bool Update(const AdamWStep& step, const void* gradient, DType gradient_dtype, const Tile& tile,
              absl::Span<const ElementRange> ranges, const MemoryNodes& nodes = {});

  // Returns true if the tuning for weights of this type is chosen.
  bool tuned(DType weight_dtype) const;
  // Returns the tuning that the next update uses, chosen or on trial.
  AdamWTuning tuning(DType weight_dtype) const;

 private:
  AdamWTuner& TunerOf(DType weight_dtype) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ThreadPool* const pool_;
  mutable Mutex mutex_;
  // One for FP32 masters and one for split masters, whose streams differ in number and width.
  mutable std::array<AdamWTuner, 2> tuners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_UPDATER_H_

// AdamW on a pool of threads, tuned to the host while it works.
//
// Thread safety: Update may be called from several threads; updates take turns.
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
  // `pool` outlives it.
  explicit AdamWUpdater(ThreadPool* pool);

  // As AdamWUpdate. The first updates of large ranges try what suits the host; the bits are the
  // same.
  bool Update(const AdamWStep& step, const void* gradient, DType gradient_dtype, const Tile& tile,
              absl::Span<const ElementRange> ranges, const MemoryNodes& nodes = {});

  // Whether the choice for weights of this type is made, and what it is now.
  bool tuned(DType weight_dtype) const;
  AdamWTuning tuning(DType weight_dtype) const;

 private:
  AdamWTuner& TunerOf(DType weight_dtype) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ThreadPool* const pool_;
  mutable Mutex mutex_;
  // FP32 masters, split masters: their streams differ in number and width.
  mutable std::array<AdamWTuner, 2> tuners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_UPDATER_H_
